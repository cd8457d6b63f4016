#!/usr/bin/env bash
# Brings what the demo and the tests need: packages, private Postgres servers, Python and Node modules.
# What is there already is left as it is; with everything there it takes well under a second.
#
# Sourced by run.sh and demo/demo.sh for its functions. As a command:
#
#     pg_test/setup.sh demo         what `make demo` needs
#     pg_test/setup.sh test         what `make test` needs
#     pg_test/setup.sh env MAJOR    prints the settings under which pytest can be called by hand:
#                                   eval "$(pg_test/setup.sh env 15)"; cd pg_test && $BIDE_PYTHON -m pytest
#
#     BIDE_WORK     where all this lives; default /var/tmp/bide-<uid>. May be deleted at any time.
#     BIDE_MAJORS   which majors the tests use; default "14 15 16 17 18"
#
# No Postgres that is on the machine is used, started or changed, its folders included: bide is
# installed into copies of the server, and those listen on a socket in a folder of their own.
set -euo pipefail

umask 022 # the server's user reads what root writes here
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
supported_majors="14 15 16 17 18"
majors=${BIDE_MAJORS:-$supported_majors}
preferred_majors="15 18 17 16 14" # Debian 12's own first
socket_port=65432                 # names the socket file; nothing listens on TCP

# A backtrace would end up in the DETAIL of every error the extension raises.
unset RUST_BACKTRACE RUST_LIB_BACKTRACE
# Settings meant for another server must not lead psql or the tests there.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGSERVICE PGSERVICEFILE PGOPTIONS PGDATA PGPASSFILE PGPASSWORD PGSSLMODE

say() { printf '[%2d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# --- the work folder --------------------------------------------------------------------------

# Sets work, logs, scratch and as_server_user. The folder is shared with nobody who could put a
# file of his own in place of a program that we run.
prepare_work_folder() {
    work=${BIDE_WORK:-/var/tmp/bide-$(id -u)}
    [[ $work == /?* ]] || die "BIDE_WORK must be an absolute path, not \"$work\""
    mkdir -p -- "$work" || die "cannot make the work folder $work; set BIDE_WORK to another one"
    if [ ! -d "$work" ] || [ -L "$work" ] || [ ! -O "$work" ] || [ -n "$(find "$work" -maxdepth 0 -perm /022)" ]; then
        die "$work must be a real folder of $(id -un) that nobody else can write; set BIDE_WORK to another"
    fi
    logs=$work/log
    scratch=$work/tmp
    mkdir -p "$logs" "$work/pg"
}

# Root cannot run a server, so the user postgres (which Debian's package makes) does it for him.
# Everybody else runs his own.
choose_server_user() {
    server_user=""
    as_server_user=()
    mkdir -p "$scratch"
    if [ "$(id -u)" = 0 ]; then
        server_user=postgres
        id "$server_user" >/dev/null 2>&1 || die "the user postgres is missing: apt-get install postgresql-common"
        as_server_user=(setpriv "--reuid=$server_user" "--regid=$(id -g "$server_user")" --init-groups)
        chown "$server_user:" "$scratch"
        "${as_server_user[@]}" test -x "$scratch" ||
            die "user $server_user cannot enter $work; set BIDE_WORK to a folder that everybody may enter"
    fi
}

# Runs a command as the server's user, in an environment without surprises and from a folder that
# he may enter. Descriptor 9 holds our lock, which a server must not keep.
as_server() {
    (cd / && exec "${as_server_user[@]}" env -i "PATH=/usr/local/bin:/usr/bin:/bin" "HOME=$scratch" \
        "TERM=${TERM:-dumb}" LC_ALL=C.UTF-8 "$@" 9>&-)
}

# lock NAME: one at a time. Held until the shell ends.
lock() {
    exec 9>"$work/$1.lock"
    flock -n 9 || die "another \"make $1\" is at work in $work; wait for it, or set BIDE_WORK to another folder"
}

# --- apt --------------------------------------------------------------------------------------

apt_updated=""
apt_update() {
    [ -z "$apt_updated" ] || return 0
    command -v apt-get >/dev/null || die "apt-get is missing: this needs Debian or Ubuntu, or PostgreSQL with headers, libclang and gcc installed by hand"
    say "asking apt for its package lists"
    apt-get -q -o DPkg::Lock::Timeout=300 update >"$logs/apt.log" 2>&1 ||
        die "apt could not load its package lists (no network?); what it said is in $logs/apt.log"
    apt_updated=yes
}

# Installs packages without starting, stopping or restarting any service, and without Debian's
# automatic cluster "main" on port 5432.
apt_install() {
    [ "$(id -u)" = 0 ] || die "missing packages; as root: apt-get install -y --no-install-recommends $*"
    apt_update
    say "installing with apt: $*"
    (
        conf=/etc/postgresql-common/createcluster.d policy=/usr/sbin/policy-rc.d mark="made by bide's setup.sh for the time of an apt-get install"
        made_conf="" made_policy=""
        # shellcheck disable=SC2317 # the trap calls it
        undo() {
            [ -z "$made_conf" ] || rm -f "$conf/bide-setup.conf"
            [ -z "$made_conf" ] || rmdir --ignore-fail-on-non-empty "$conf" || true
            [ -z "$made_policy" ] || rm -f "$policy"
        }
        trap undo EXIT
        trap 'exit 130' INT TERM HUP
        made_conf=yes
        mkdir -p "$conf"
        printf '# %s\ncreate_main_cluster = false\n' "$mark" >"$conf/bide-setup.conf"
        # One that is there already says what the machine's owner wants; ours may be left of a kill.
        if [ ! -e "$policy" ] || grep -q "$mark" "$policy"; then
            made_policy=yes
            printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
            chmod 755 "$policy"
        fi
        DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -y -o DPkg::Lock::Timeout=300 \
            --no-install-recommends install "$@" >>"$logs/apt.log" 2>&1 </dev/null
    ) || die "apt could not install $* (no network?); what it said is in $logs/apt.log"
}

have_server() { [ -x "/usr/lib/postgresql/$1/bin/postgres" ]; }
have_headers() { [ -e "/usr/include/postgresql/$1/server/postgres.h" ] && [ -x "/usr/lib/postgresql/$1/bin/pg_config" ]; }
have_file() { compgen -G "$1" >/dev/null; }
apt_has() { apt-cache show "$1" >/dev/null 2>&1; }

# Sets main_major: the server from the distribution, used by the demo and tested in full. What is
# there comes first, then what apt can bring.
choose_main_major() {
    local m
    for m in $preferred_majors; do
        if have_server "$m" && have_headers "$m"; then main_major=$m && return; fi
    done
    [ "$(id -u)" != 0 ] || apt_update
    for m in $preferred_majors; do
        if apt_has "postgresql-$m" && apt_has "postgresql-server-dev-$m"; then main_major=$m && return; fi
    done
    die "apt offers no PostgreSQL 14 to 18 (try apt-get update)"
}

# need_packages demo|test: installs what is missing of it. Tells by files, which is quick.
need_packages() {
    local missing=()
    choose_main_major
    have_server "$main_major" || missing+=("postgresql-$main_major")
    have_headers "$main_major" || missing+=("postgresql-server-dev-$main_major")
    command -v gcc >/dev/null || missing+=(gcc libc6-dev)
    command -v make >/dev/null || missing+=(make)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    [ -e /usr/share/zoneinfo/UTC ] || missing+=(tzdata)
    # libclang reads the server's headers, with clang's own headers (stddef.h) beside it.
    if [ -z "${LIBCLANG_PATH:-}" ] &&
        ! { have_file '/usr/lib/llvm-*/lib/libclang*.so*' && have_file '/usr/lib/llvm-*/lib/clang/*/include/stddef.h'; }; then
        [ "$(id -u)" != 0 ] || apt_update
        if apt_has libclang-14-dev; then missing+=(libclang-14-dev clang-14); else missing+=(libclang-dev clang); fi
    fi
    if [ "$1" = test ]; then
        python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing+=(python3 python3-venv)
        [ -x /usr/sbin/pgbouncer ] || command -v pgbouncer >/dev/null || missing+=(pgbouncer)
        command -v node >/dev/null || missing+=(nodejs)
        command -v npm >/dev/null || missing+=(npm)
    fi
    [ ${#missing[@]} != 0 ] || return 0
    apt_install "${missing[@]}"
    # Not started by our install, and not at the next boot either.
    if [[ " ${missing[*]} " == *" pgbouncer "* ]] && [ -d /run/systemd/system ]; then
        systemctl --quiet disable pgbouncer || true
    fi
}

# --- cargo ------------------------------------------------------------------------------------

# need_cargo [component...]
need_cargo() {
    local wanted have component
    command -v cargo >/dev/null || die "cargo is missing: install Rust (rustup) and have cargo on PATH"
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$repo/Cargo.toml")
    have=$(cd "$repo" && cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ] ||
        die "cargo is $have, bide needs $wanted or newer: rustup update stable"
    for component in "$@"; do
        (cd "$repo" && cargo "$component" --version >/dev/null 2>&1) ||
            die "cargo $component is missing: rustup component add rustfmt clippy"
    done
}

# All crates at once, so that a missing network shows before anything is built.
fetch_crates() {
    local log=$logs/cargo-fetch.log
    if ! (cd "$repo" && cargo fetch --locked --offline) >"$log" 2>&1; then
        say "loading crates"
        (cd "$repo" && cargo fetch --locked) 2>&1 | tee "$log" ||
            die "cargo could not load the crates that Cargo.lock names (no network?); what it said is in $log"
    fi
}

# Sets cargo_pgrx. Only the check of the install script needs it.
need_cargo_pgrx() {
    local version
    version=$(sed -n 's/^pgrx = .*"=\([0-9.]*\)".*/\1/p' "$repo/Cargo.toml")
    for cargo_pgrx in "$(command -v cargo-pgrx || true)" "$work/cargo-pgrx/bin/cargo-pgrx"; do
        if [ -x "$cargo_pgrx" ] && [ "$("$cargo_pgrx" pgrx --version)" = "cargo-pgrx $version" ]; then return; fi
    done
    say "building cargo-pgrx $version, once (some minutes)"
    (cd / && cargo install cargo-pgrx --version "=$version" --locked --root "$work/cargo-pgrx") ||
        die "cargo could not build cargo-pgrx $version (no network?)"
}

# --- Python, Node -----------------------------------------------------------------------------

# need_venv: sets python.
need_venv() {
    local venv=$work/venv stamp
    python=$venv/bin/python
    stamp=$(python3 --version)/$(sha256sum <"$repo/pg_test/requirements.txt")
    if [ -x "$python" ] && [ "$(cat "$venv/stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
    say "installing the Python modules of the tests"
    rm -rf "$venv"
    python3 -m venv "$venv" >"$logs/pip.log" 2>&1 || die "python3 could not make a venv; what it said is in $logs/pip.log"
    "$python" -m pip --disable-pip-version-check install -q --only-binary=:all: -r "$repo/pg_test/requirements.txt" \
        >>"$logs/pip.log" 2>&1 || die "pip could not install pg_test/requirements.txt (no network?); what it said is in $logs/pip.log"
    printf '%s' "$stamp" >"$venv/stamp"
}

# need_node_modules: sets node_path, for NODE_PATH.
need_node_modules() {
    local node=$work/node stamp
    node_path=$node/node_modules
    stamp=$(node --version)/$(sha256sum <"$repo/pg_test/node/package-lock.json")
    if [ -d "$node_path" ] && [ "$(cat "$node/stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
    say "installing the Node modules of the tests"
    rm -rf "$node"
    mkdir -p "$node"
    cp "$repo/pg_test/node/package.json" "$repo/pg_test/node/package-lock.json" "$node/"
    (cd "$node" && npm ci --no-audit --no-fund --ignore-scripts) >"$logs/npm.log" 2>&1 ||
        die "npm could not install pg_test/node/package-lock.json (no network?); what it said is in $logs/npm.log"
    printf '%s' "$stamp" >"$node/stamp"
}

# --- private servers --------------------------------------------------------------------------

# A server tree of a major is one of two: a copy of the distribution's, laid out as in /usr, or an
# unpacked wheel. pg_config_of gives the pg_config whose headers bide is built with and whose paths,
# below destdir_of, it is installed to.
bindir_of() { if [ -d "$work/pg/$1/usr" ]; then echo "$work/pg/$1/usr/lib/postgresql/$1/bin"; else echo "$work/pg/$1/bin"; fi; }
pg_config_of() { if [ -d "$work/pg/$1/usr" ]; then echo "/usr/lib/postgresql/$1/bin/pg_config"; else echo "$work/pg/$1/bin/pg_config"; fi; }
destdir_of() { if [ -d "$work/pg/$1/usr" ]; then echo "$work/pg/$1"; fi; }

tree_is() { [ "$(cat "$work/pg/$1/stamp" 2>/dev/null)" = "$2" ]; }

# tree_done MAJOR STAMP: puts the finished tree in place of an older one.
tree_done() {
    printf '%s' "$2" >"$work/pg/.$1.new/stamp"
    rm -rf "${work:?}/pg/$1"
    mv "$work/pg/.$1.new" "$work/pg/$1"
}

# Postgres finds its files relative to its program, so a copy of the distribution's server looks for
# extensions in the copy.
need_copied_server() {
    local m=$1 new=$work/pg/.$1.new stamp
    stamp=$("/usr/lib/postgresql/$m/bin/postgres" --version)
    if tree_is "$m" "$stamp"; then return; fi
    say "copying $stamp to $work/pg/$m"
    rm -rf "$new"
    mkdir -p "$new/usr/lib/postgresql" "$new/usr/share/postgresql"
    cp -a "/usr/lib/postgresql/$m" "$new/usr/lib/postgresql/"
    cp -a "/usr/share/postgresql/$m" "$new/usr/share/postgresql/"
    rm -f "$new/usr/lib/postgresql/$m/lib/bide.so" "$new/usr/share/postgresql/$m/extension/bide"[.-]*
    tree_done "$m" "$stamp"
}

# The wheel holds one archive with a relocatable server, its headers and pg_config.
need_wheel_server() {
    local m=$1 new=$work/pg/.$1.new file=$repo/pg_test/majors/pg$1.txt stamp missing
    stamp=$(sha256sum <"$file")
    if tree_is "$m" "$stamp"; then return; fi
    say "loading PostgreSQL $m"
    rm -rf "$new"
    mkdir -p "$new/wheel"
    # The wheel claims Python 3.12 or newer, but only the archive in it is taken.
    "$python" -m pip --disable-pip-version-check download -q --no-deps --only-binary=:all: --python-version 3.12 \
        --require-hashes -r "$file" -d "$new/wheel" >"$logs/pg$m.log" 2>&1 ||
        die "pip could not load PostgreSQL $m (no network, or not x86-64); what it said is in $logs/pg$m.log"
    "$python" -c '
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
sys.stdout.buffer.write(wheel.read(next(n for n in wheel.namelist() if n.endswith(".tar.gz"))))' "$new/wheel/"*.whl |
        tar xz --no-same-owner --strip-components=1 -C "$new" || die "the archive of PostgreSQL $m cannot be unpacked"
    rm -rf "$new/wheel"
    missing=$(ldd "$new/bin/postgres" "$new/bin/psql" | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
    [ -z "$missing" ] || die "PostgreSQL $m needs shared libraries that are missing: $missing"
    tree_done "$m" "$stamp"
}

# need_server MAJOR: a private server tree of that major.
need_server() {
    if [ "$1" = "$main_major" ]; then need_copied_server "$1"; else need_wheel_server "$1"; fi
}

build() { make --no-print-directory -s -C "$repo" all "PG_CONFIG=$(pg_config_of "$1")"; }

# build_and_install MAJOR: bide into the private tree of that major.
build_and_install() {
    build "$1" &&
        make --no-print-directory -s -C "$repo" install "PG_CONFIG=$(pg_config_of "$1")" "DESTDIR=$(destdir_of "$1")" >/dev/null
}

# --- clusters ---------------------------------------------------------------------------------

# A cluster is a folder of the server's user with data/, socket/ and server.log.

# cluster_make MAJOR FOLDER [line for postgresql.conf...]
cluster_make() {
    local bin dir=$2
    bin=$(bindir_of "$1")
    as_server mkdir -m 700 "$dir" "$dir/socket" || return
    as_server "$bin/initdb" -D "$dir/data" -U postgres -A trust -N --no-locale -E UTF8 >"$logs/initdb.log" 2>&1 ||
        { cat "$logs/initdb.log" >&2 && return 1; }
    shift 2
    printf '%s\n' "listen_addresses = ''" "port = $socket_port" "unix_socket_directories = '$dir/socket'" "$@" |
        as_server tee -a "$dir/data/postgresql.conf" >/dev/null
}

# cluster_start MAJOR FOLDER
cluster_start() {
    as_server "$(bindir_of "$1")/pg_ctl" start -s -w -t 120 -D "$2/data" -l "$2/server.log" >/dev/null ||
        { tail -n 20 "$2/server.log" >&2 && return 1; }
}

# cluster_stop MAJOR FOLDER [fast|immediate]: no complaint when it does not run.
cluster_stop() {
    [ -e "$2/data/postmaster.pid" ] || return 0
    as_server "$(bindir_of "$1")/pg_ctl" stop -s -w -t 120 -m "${3:-fast}" -D "$2/data" >/dev/null 2>&1 || true
}

# cluster_psql MAJOR FOLDER DATABASE [psql's own arguments]
cluster_psql() {
    local bin dir=$2 database=$3
    bin=$(bindir_of "$1")
    shift 3
    as_server "$bin/psql" -X -v ON_ERROR_STOP=1 -h "$dir/socket" -p "$socket_port" -U postgres -d "$database" "$@"
}

# --- what each command needs ------------------------------------------------------------------

setup_demo() {
    prepare_work_folder
    need_cargo
    need_packages demo
    choose_server_user
    fetch_crates
    need_copied_server "$main_major"
}

setup_test() {
    local m
    prepare_work_folder
    for m in $majors; do
        [[ " $supported_majors " == *" $m "* ]] || die "BIDE_MAJORS: bide does not support PostgreSQL $m, only $supported_majors"
    done
    need_cargo fmt clippy
    need_packages test
    choose_server_user
    fetch_crates
    need_venv
    need_node_modules
    for m in $majors; do need_server "$m"; done
}

# Prints the settings that pytest reads: see cluster.py.
print_env() {
    printf 'export %s=%q\n' BIDE_PG_BINDIR "$(bindir_of "$1")" BIDE_MAJOR "$1" BIDE_RUN_AS "$server_user" \
        BIDE_TMP "$2" BIDE_PYTHON "$python" NODE_PATH "$node_path" PYTHONDONTWRITEBYTECODE 1
    echo "unset RUST_BACKTRACE RUST_LIB_BACKTRACE"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    case ${1:-} in
    demo | test) "setup_$1" ;;
    env)
        [ $# = 2 ] || die "which major? setup.sh env 15"
        majors=$2
        setup_test >&2
        build_and_install "$2" >&2
        print_env "$2" "$scratch"
        ;;
    *) die "one of: demo, test, env MAJOR" ;;
    esac
fi
