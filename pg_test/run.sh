#!/usr/bin/env bash
# Runs the tests on private servers. Used by the Makefile:
#
#     run.sh test             everything; each of BIDE_MAJORS (default 14 to 18) is built and tested
#     run.sh soak             the tests that run for hours, on the distribution's major
#     run.sh bench [args]     the benchmarks, on the distribution's major
#     run.sh sql              writes the install script sql/bide--<version>.sql anew from the sources
#
# The distribution's major (15 on Debian 12) gets the whole suite, the others its core. The last line
# is "N passed, N failed"; what was skipped counts as failed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$repo"

passed=0
failed=0
failures=()

# count PASSED FAILED NAME
count() {
    passed=$((passed + $1))
    failed=$((failed + $2))
    [ "$2" = 0 ] || failures+=("$3: $2 failed")
}

# step NAME COMMAND...: one check that passes or fails as a whole. Nothing in a function called here
# stops at an error by itself: bash switches that off behind `if`.
step() {
    local name=$1
    shift
    say "$name"
    if "$@"; then
        count 1 0 "$name"
    else
        say "FAILED: $name"
        count 0 1 "$name"
        return 1
    fi
}

# --- the parts --------------------------------------------------------------------------------

version() { sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1; }

control_names_version() {
    grep -qx "default_version = '$(version)'" bide.control ||
        { echo "bide.control does not say default_version = '$(version)', as Cargo.toml does" && return 1; }
}

# clippy FEATURES
clippy() {
    PGRX_PG_CONFIG_PATH=$(pg_config_of "$main_major") \
        cargo clippy --all-targets --no-default-features --features "$1" -- -D warnings
}

# Tests of the client and of everything that knows nothing of Postgres.
cargo_tests() {
    local log=$logs/cargo-test.log status=0 sums
    say "cargo test"
    cargo test --no-default-features --features client --lib 2>&1 | tee "$log" || status=$?
    sums=$(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
    [ "$status" = 0 ] || [ "${sums#* }" != 0 ] || sums="${sums% *} 1"
    # shellcheck disable=SC2086 # two numbers
    count $sums "cargo test"
}

# generate_sql MAJOR FILE: the install script that the library built last asks for.
generate_sql() {
    PGRX_HOME=$work/pgrx "$cargo_pgrx" pgrx schema --skip-build --release --no-default-features \
        --features "pg$1" -c "$(pg_config_of "$1")" -o "$2.raw" "pg$1" >"$logs/schema.log" 2>&1 ||
        { cat "$logs/schema.log" && return 1; }
    awk -f pg_test/order_sql.awk "$2.raw" >"$2" && rm "$2.raw"
}

pgrx_home() {
    local m args=()
    for m in $majors; do args+=("--pg$m=$(pg_config_of "$m")"); done
    mkdir -p "$work/pgrx"
    PGRX_HOME=$work/pgrx "$cargo_pgrx" pgrx init --no-run "${args[@]}" >"$logs/pgrx-init.log" 2>&1 ||
        { cat "$logs/pgrx-init.log" && return 1; }
}

# install_script_is_current MAJOR
install_script_is_current() {
    local made=$work/install-pg$1.sql
    generate_sql "$1" "$made" || return
    diff -u "sql/bide--$(version).sql" "$made" || { echo "the install script differs from the sources: make sql" && return 1; }
}

# regress MAJOR: the SQL tests with Postgres' own pg_regress, which compares output with what is expected.
regress() {
    local m=$1 dir=$run_dir/regress-$1 log=$logs/regress-$1.log status=0 program names sums
    say "PostgreSQL $m: pg_regress"
    names=$(find pg_test/regress/ -path '*/sql/*.sql' -printf '%f\n' | sed 's/\.sql$//' | sort) || true
    program=$(dirname "$("$(pg_config_of "$m")" --pgxs)")/../test/regress/pg_regress
    [ -x "$program" ] || program=/usr/lib/postgresql/$main_major/lib/pgxs/src/test/regress/pg_regress
    if ! { [ -n "$names" ] && cluster_make "$m" "$dir" "fsync = off" && cluster_start "$m" "$dir"; }; then
        echo "there are no tests in pg_test/regress/sql, or no server for them"
        count 0 1 "pg_regress $m"
        return
    fi
    # The server's user may not be able to read the repository.
    as_server mkdir "$dir/in" "$dir/out"
    cp -r pg_test/regress/. "$dir/in/"
    # shellcheck disable=SC2086 # names of files of ours
    as_server "$program" --bindir="$(bindir_of "$m")" --host="$dir/socket" --port="$socket_port" --user=postgres \
        --inputdir="$dir/in" --outputdir="$dir/out" --dbname=regress --load-extension=bide $names 2>&1 | tee "$log" || status=$?
    # 16 and later: "ok 1 - name", "not ok 1 - name"; before: "test name ... ok", "... FAILED"
    sums=$(awk '/^ok +[0-9]+ / || /^test .* \.\.\. ok / { p++ }
                /^not ok +[0-9]+ / || /^test .* \.\.\. FAILED / { f++ } END { print p + 0, f + 0 }' "$log")
    if [ "$status" != 0 ]; then
        echo # "Bail out!" ends without a new line
        [ ! -e "$dir/out/regression.diffs" ] || cat "$dir/out/regression.diffs"
        [ "${sums#* }" != 0 ] || sums="${sums% *} 1"
    fi
    # shellcheck disable=SC2086 # two numbers
    count $sums "pg_regress $m"
    cluster_stop "$m" "$dir" immediate
}

# pytest MAJOR MARKERS
pytest() {
    local m=$1 log=$logs/pytest-$1.log status=0 sums
    say "PostgreSQL $m: pytest -m \"$2\""
    (
        eval "$(print_env "$m" "$run_dir")"
        export PYTHONUNBUFFERED=1
        cd pg_test && exec "$python" -m pytest --color=no -m "$2" 9>&-
    ) 2>&1 | tee "$log" || status=$?
    # Its closing line: "=== 1 failed, 12 passed, 3 deselected in 4.56s ==="
    sums=$(awk '/^=+ .* in [0-9.]+s.* =+$/ { line = $0 }
        END {
            n = split(line, word, /[ ,=]+/)
            for (i = 2; i <= n; i++) {
                if (word[i] == "passed") p += word[i - 1]
                if (word[i] ~ /^(failed|errors?|skipped|xfailed|xpassed)$/) f += word[i - 1]
            }
            print p + 0, f + 0
        }' "$log")
    [ "$status" = 0 ] || [ "${sums#* }" != 0 ] || sums="${sums% *} 1"
    # shellcheck disable=SC2086 # two numbers
    count $sums "pytest $m"
}

# --- a folder for this run, and what a run that was killed left -----------------------------------

clear_run() {
    local pid_file bin
    for pid_file in "$1"/*/data/postmaster.pid; do
        [ -e "$pid_file" ] || continue
        # Any major's pg_ctl stops any major's server: it reads the process id and sends a signal.
        bin=$(bindir_of "$main_major")
        as_server "$bin/pg_ctl" stop -s -w -m immediate -D "${pid_file%/*}" >/dev/null 2>&1 || true
    done
    rm -rf "$1"
}

start_run() {
    local old
    lock test
    for old in "$scratch"/run-*; do [ ! -d "$old" ] || clear_run "$old"; done
    run_dir=$(as_server mktemp -d "$scratch/run-XXXXXX")
    chmod 755 "$run_dir"
    trap 'clear_run "$run_dir"' EXIT
    trap 'exit 130' INT TERM HUP
}

# build_major MAJOR
build_major() { step "PostgreSQL $1: build and install ($(pg_config_of "$1"))" build_and_install "$1"; }

# --- the commands -----------------------------------------------------------------------------

run_test() {
    local m expression
    setup_test
    need_cargo_pgrx
    start_run
    step "rustfmt" cargo fmt -- --check -l || true
    step "bide.control and Cargo.toml name one version" control_names_version || true
    pgrx_home
    for m in $main_major $majors; do
        # The distribution's comes first, when it is wanted at all.
        if [ "$m" = "$main_major" ]; then
            [[ " $majors " == *" $m "* && " ${done_majors:-} " != *" $m "* ]] || continue
        fi
        done_majors="${done_majors:-} $m"
        build_major "$m" || continue
        step "PostgreSQL $m: install script is what the sources give" install_script_is_current "$m" || true
        regress "$m"
        if [ "$m" = "$main_major" ]; then
            step "clippy, extension" clippy "pg$m" || true
            step "clippy, client" clippy client || true
            cargo_tests
            expression="not soak"
        else
            expression="core and not soak"
        fi
        pytest "$m" "$expression"
    done
    say "PostgreSQL$done_majors done"
    finish
}

finish() {
    [ ${#failures[@]} = 0 ] || printf '  %s\n' "${failures[@]}"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

# The distribution's major alone.
main_only() {
    prepare_work_folder
    need_cargo
    choose_main_major
    majors=$main_major
    setup_test
    start_run
}

case ${1:-} in
test) run_test ;;
soak)
    main_only
    build_major "$main_major" && pytest "$main_major" soak
    finish
    ;;
bench)
    main_only
    shift
    build_and_install "$main_major"
    eval "$(print_env "$main_major" "$run_dir")"
    "$python" pg_test/bench/bench.py "$@" 9>&-
    ;;
sql)
    setup_demo
    need_cargo_pgrx
    majors=$main_major
    pgrx_home
    build "$main_major"
    generate_sql "$main_major" "$work/install.sql"
    cp "$work/install.sql" "sql/bide--$(version).sql"
    say "wrote sql/bide--$(version).sql"
    ;;
*) die "one of: test, soak, bench, sql" ;;
esac
