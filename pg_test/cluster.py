"""A private Postgres cluster: made, started, hurt and removed by the tests.

Set by run.sh, never guessed here:

    BIDE_PG_BINDIR  bin folder of a server tree in which bide is installed
    BIDE_MAJOR      its major, as a number
    BIDE_RUN_AS     OS user the server runs as; empty: the user who runs the tests
    BIDE_TMP        a folder that user can write; clusters live below it

A cluster listens on a Unix socket in its own folder and nowhere else, so it meets neither another
server nor port 5432. Nothing is ended by name: pg_ctl stops the server, a backend is killed by its id.
"""

from __future__ import annotations

import atexit
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

SUPERUSER = "postgres"
PORT = 65432  # names the socket file only
SOCKET_DIR_CHARS_MAX = 90  # sockaddr_un has room for 107, "/.s.PGSQL.65432" included
PG_CTL_TIMEOUT_S = 120

DEFAULTS = {
    "listen_addresses": "",
    "port": str(PORT),
    "max_connections": "200",
    "deadlock_timeout": "200ms",
    "shared_buffers": "128MB",
    "wal_level": "replica",
    "max_wal_senders": "8",
    "max_prepared_transactions": "8",
    "log_line_prefix": "%m [%p] %e ",
}
# What no test may leave in a server's log: our own bugs, and what Postgres says of a careless extension.
LOG_UNWANTED = re.compile(
    r" XX000 |PANIC:|TRAP:|terminated by signal (?!9:)|reference leak|refcount leak|leaked|still active"
    r"|non-empty SPI stack|you don't own a lock|not owned by resource owner|AbortTransaction while|lock table corrupted"
)

# A crash of the server process loses nothing that reached the operating system, but a test that
# speaks of crashes runs with the settings whose behaviour it speaks of.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


def bindir() -> Path:
    value = os.environ.get("BIDE_PG_BINDIR")
    if not value:
        raise RuntimeError("BIDE_PG_BINDIR is not set: run pg_test/run.sh, or name a server's bin folder")
    return Path(value)


def server_env() -> dict[str, str]:
    """The environment of server programs: no backtraces (they would land in error details), no PG*."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "RUST_"))}
    env.update(LC_ALL="C.UTF-8", TZ="UTC")
    # The unpacked servers find their own libpq only this way; the distribution's is too old for the WAL
    # receiver of 16 and later.
    own_libraries = bindir().parent / "lib"
    if (own_libraries / "libpq.so.5").exists():
        env["LD_LIBRARY_PATH"] = str(own_libraries)
    return env


class Cluster:
    def __init__(
        self,
        name: str = "main",
        *,
        durable: bool = False,
        conf: dict[str, str] | None = None,
        initdb_args: list[str] | None = None,
        _from: "Cluster | None" = None,
        _replication_conf: dict[str, str] | None = None,
    ):
        """Makes the data folder; `start` starts it. `durable`: fsync and full_page_writes stay on."""
        self.name = name
        self.bindir = bindir()
        self.durable = durable
        user = os.environ.get("BIDE_RUN_AS", "postgres" if os.geteuid() == 0 else "")
        self._as = pwd.getpwnam(user) if user and user != pwd.getpwuid(os.geteuid()).pw_name else None
        base = os.environ.get("BIDE_TMP") or tempfile.gettempdir()
        self.base = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        self.data = self.base / "data"
        self.log = self.base / "server.log"
        self.socket_dir = self.base / "s"
        if len(str(self.socket_dir)) > SOCKET_DIR_CHARS_MAX:
            self.socket_dir = Path(tempfile.mkdtemp(prefix="bide-"))
        self.socket_dir.mkdir(exist_ok=True)
        for folder in {self.base, self.socket_dir}:
            self._own(folder)
        self.standbys: list[Cluster] = []
        self._running = False
        atexit.register(self.remove)
        if _from is None:
            self._run(
                "initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8",
                "--locale=C.UTF-8", "--no-sync", *(initdb_args or []),
            )
            self.append_conf({**DEFAULTS, **({} if durable else NOT_DURABLE)})
        else:
            self._run(
                "pg_basebackup", "-h", _from.socket_dir, "-p", PORT, "-U", SUPERUSER, "-D", self.data,
                "-R", "-X", "stream", "-c", "fast", "--no-sync",
            )
            self.append_conf(_replication_conf or {})
        self.append_conf({"unix_socket_directories": str(self.socket_dir), **(conf or {})})

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        if not self._running:
            try:
                self._run("pg_ctl", "start", "-D", self.data, "-w", "-t", PG_CTL_TIMEOUT_S, "-l", self.log)
            except RuntimeError as error:
                raise RuntimeError(f"{error}\nserver log ends:\n{self.log_text()[-4000:]}") from None
            self._running = True
        return self

    def stop(self, mode: str = "fast") -> None:
        """`mode`: fast, smart or immediate (which is what a crash leaves behind)."""
        if self._running:
            self._run("pg_ctl", "stop", "-D", self.data, "-m", mode, "-w", "-t", PG_CTL_TIMEOUT_S)
            self._running = False

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def reload(self) -> None:
        self._run("pg_ctl", "reload", "-D", self.data)

    def remove(self) -> None:
        """Stops the cluster and its standbys and deletes their folders. May be called twice."""
        for standby in self.standbys:
            standby.remove()
        if self._running:
            try:
                self.stop("immediate")
            except RuntimeError as error:
                print(f"could not stop cluster {self.name}: {error}")
                return
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(self, *_exc) -> None:
        self.remove()

    # -- settings, log ------------------------------------------------------------------------

    def append_conf(self, settings: dict[str, str] | str) -> None:
        """Adds settings to postgresql.conf: a dict, or lines as they stand there. Start, restart or
        reload makes them hold."""
        if isinstance(settings, dict):
            settings = "".join("{} = '{}'\n".format(k, str(v).replace("'", "''")) for k, v in settings.items())
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(settings if settings.endswith("\n") else settings + "\n")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def assert_log_clean(self) -> None:
        """No internal error, no crash that a test did not cause, no leak of what Postgres counts."""
        found = [line for line in self.log_text().splitlines() if LOG_UNWANTED.search(line)]
        assert not found, "\n".join(["unwanted lines in the server's log:", *found[:20]])

    # -- connections --------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        return f"host={self.socket_dir} port={PORT} user={SUPERUSER} dbname=postgres"

    def connect(self, **kw) -> psycopg.Connection:
        """A psycopg connection, autocommit unless told otherwise; takes psycopg's own keywords.
        `settings={...}` are set for the session, as a role's or driver's settings would be."""
        kw.setdefault("autocommit", True)
        kw.setdefault("dbname", "postgres")
        kw.setdefault("user", SUPERUSER)
        settings = kw.pop("settings", None)
        if settings:
            escaped = {k: str(v).replace("\\", "\\\\").replace(" ", "\\ ") for k, v in settings.items()}
            kw["options"] = " ".join(
                [kw.get("options", ""), *(f"-c {k}={v}" for k, v in escaped.items())]
            ).strip()
        return psycopg.connect(host=str(self.socket_dir), port=PORT, **kw)

    def psql(self, sql: str, dbname: str = "postgres", user: str = SUPERUSER, check: bool = True) -> str:
        """Runs `sql` in psql, unaligned, stopping at the first error; gives what it printed."""
        done = self._run(
            "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.socket_dir, "-p", PORT,
            "-U", user, "-d", dbname, "-f", "-", stdin=sql, check=check,
        )
        return (done.stdout if check else done.stdout + done.stderr).strip()

    def program(self, name: str, *args, stdin: str | None = None, check: bool = True):
        """Runs one of the server's programs (pg_dump, pgbench, …) against this cluster."""
        return self._run(
            name, "-h", self.socket_dir, "-p", PORT, "-U", SUPERUSER, *args, stdin=stdin, check=check
        )

    # -- damage and copies --------------------------------------------------------------------

    def sigkill(self, pid: int) -> None:
        """Kills one backend. The postmaster then restarts the others, as after a crash."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        if pid <= 1 or pid == postmaster or _parent(pid) != postmaster:
            raise RuntimeError(f"{pid} is not a backend of this cluster")
        os.kill(pid, signal.SIGKILL)

    def basebackup(self, name: str = "standby", conf: dict[str, str] | None = None) -> "Cluster":
        """A streaming standby of this cluster, not yet started; removed with it."""
        primary = f"host={self.socket_dir} port={PORT} user={SUPERUSER} application_name={name}"
        standby = Cluster(
            name, durable=self.durable, conf=conf, _from=self,
            _replication_conf={"primary_conninfo": primary, "hot_standby": "on"},
        )
        self.standbys.append(standby)
        return standby

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-D", self.data, "-w", "-t", PG_CTL_TIMEOUT_S)

    def amcheck(self, table: str, dbname: str = "postgres") -> None:
        """Raises unless the table, its partitions and all their B-tree indexes are sound: every heap
        row is found in every index, and every unique index is unique."""
        with self.connect(dbname=dbname) as conn:
            conn.execute("CREATE EXTENSION IF NOT EXISTS amcheck WITH SCHEMA pg_catalog")
            leaves = conn.execute(
                "SELECT c.oid::pg_catalog.regclass::text, am.amname FROM pg_catalog.pg_class c"
                " JOIN pg_catalog.pg_am am ON am.oid = c.relam WHERE c.relkind = 'r' AND (c.oid = %s::regclass"
                " OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%s::regclass)))",
                (table, table),
            ).fetchall()
            if not leaves:
                raise RuntimeError(f"{table} has nothing to check")
            for leaf, am in leaves:
                if am == "heap":
                    bad = conn.execute("SELECT * FROM verify_heapam(%s::regclass)", (leaf,)).fetchall()
                    if bad:
                        raise AssertionError(f"heap of {leaf} is damaged: {bad[:5]}")
                indexes = conn.execute(
                    "SELECT i.indexrelid::pg_catalog.regclass::text FROM pg_catalog.pg_index i"
                    " JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid"
                    " JOIN pg_catalog.pg_am am ON am.oid = c.relam"
                    " WHERE i.indrelid = %s::regclass AND am.amname = 'btree' AND i.indisvalid",
                    (leaf,),
                ).fetchall()
                for (index,) in indexes:
                    conn.execute("SELECT bt_index_parent_check(%s::regclass, true)", (index,))

    # -- inside -------------------------------------------------------------------------------

    def _own(self, path: Path) -> None:
        path.chmod(0o755)
        if self._as:
            os.chown(path, self._as.pw_uid, self._as.pw_gid)

    def _run(self, program: str, *args, stdin: str | None = None, check: bool = True):
        identity = {}
        if self._as:
            identity = {"user": self._as.pw_uid, "group": self._as.pw_gid, "extra_groups": []}
        # Output goes to files: a started server inherits it, and a pipe would keep us waiting for it.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                [str(self.bindir / program), *map(str, args)],
                env=server_env(), cwd="/", text=True, stdout=out, stderr=err,
                **({"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}), **identity,
            )
            out.seek(0), err.seek(0)
            done.stdout, done.stderr = out.read(), err.read()
        if check and done.returncode != 0:
            command = " ".join([program, *map(str, args)])
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])
