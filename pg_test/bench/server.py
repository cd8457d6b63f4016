"""A server to measure: its psql and pgbench, and a private one when none is given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MAINTENANCE_DB = "postgres"

# The private server: room enough that no timed checkpoint falls into a measured run, durable as in production.
PRIVATE_CONF = {
    "shared_buffers": "2GB",
    "max_wal_size": "16GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "1h",
    "max_connections": "100",
    "maintenance_work_mem": "512MB",
    "jit": "off",
}

SHOWN_SETTINGS = (
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "fsync",
    "full_page_writes",
    "wal_sync_method",
    "wal_level",
    "synchronous_commit",
    "default_transaction_isolation",
    "autovacuum",
    "jit",
)


class BenchError(RuntimeError):
    """What went wrong, in one sentence for the person at the terminal."""


@dataclass(frozen=True)
class Run:
    """One pgbench run."""

    tps: float
    latency_ms: float
    transactions: int
    retries: int = 0


@dataclass
class Server:
    bindir: Path
    host: str
    port: str
    user: str = "postgres"
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)

    def psql(self, dbname: str, sql: str) -> str:
        done = subprocess.run(
            [self.bindir / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *self._where(dbname), "-f", "-"],
            input=sql,
            text=True,
            capture_output=True,
            env=self._env({}),
        )
        if done.returncode != 0:
            raise BenchError(f"psql failed in {dbname}: {done.stderr.strip()}")
        return done.stdout.strip()

    def pgbench(
        self,
        dbname: str,
        script: Path,
        *,
        clients: int,
        seconds: float,
        variables: dict[str, object],
        settings: dict[str, str],
        retry: bool = False,
    ) -> Run:
        """`variables` become pgbench's, `settings` the sessions' own. `retry`: 40001 and 40P01 are tried again
        until the time is up."""
        command = [
            self.bindir / "pgbench",
            "-n",
            "-M",
            "prepared",
            "-f",
            script,
            "-T",
            max(1, round(seconds)),
            "-c",
            clients,
            "-j",
            min(clients, self.cores),
            "--random-seed=1",
            *self._where(dbname),
        ]
        command += ["--max-tries=0"] if retry else []
        for name, value in variables.items():
            command += ["-D", f"{name}={value}"]
        done = subprocess.run(
            [str(part) for part in command],
            text=True,
            capture_output=True,
            env=self._env({"PGOPTIONS": _pgoptions(settings)}),
        )
        if done.returncode != 0 or "aborted" in done.stderr:
            raise BenchError(f"pgbench failed with {script.name} in {dbname}: {done.stderr.strip()[-1500:]}")
        return _parse(done.stdout)

    @contextmanager
    def held_snapshot(self, dbname: str):
        """A repeatable-read transaction that has read once and stays open, as a backup or report does."""
        holder = subprocess.Popen(
            [self.bindir / "psql", "-X", "-A", "-t", "-q", *self._where(dbname)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._env({}),
        )
        try:
            holder.stdin.write(
                "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 'held' FROM pg_catalog.pg_class LIMIT 1;\n"
            )
            holder.stdin.flush()
            if holder.stdout.readline().strip() != "held":
                raise BenchError("the session that should hold a snapshot did not answer")
            yield
        finally:
            holder.stdin.close()
            holder.wait()

    def description(self) -> list[str]:
        """Machine, server and settings, for the head of the output."""
        names = ", ".join(f"'{name}'" for name in SHOWN_SETTINGS)
        settings = self.psql(
            MAINTENANCE_DB,
            "SELECT name || '=' || pg_catalog.current_setting(name) FROM pg_catalog.pg_settings"
            f" WHERE name IN ({names})"
            " ORDER BY name",
        ).split("\n")
        return [
            f"machine: {_cpu()}, {self.cores} cores, {_memory_gb()} GB of memory; client and server share it",
            f"server: {self.psql(MAINTENANCE_DB, 'SELECT pg_catalog.version()')}",
            "settings: " + ", ".join(settings),
        ]

    def _where(self, dbname: str) -> list[str]:
        return ["-h", self.host, "-p", self.port, "-U", self.user, dbname]

    def _env(self, extra: dict[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PG") or k == "PGPASSWORD"}
        return {**kept, "LC_ALL": "C.UTF-8", "PGAPPNAME": "bide bench", **extra}


@contextmanager
def private_server():
    """A cluster of our own, below BIDE_TMP, removed at the end."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    try:
        from cluster import PORT, SUPERUSER, Cluster
    except ModuleNotFoundError as error:
        raise BenchError(
            f"a private server is made by the test harness, which needs the Python package {error.name}:"
            " start this with the Python that runs the tests, or name a server with --bindir, --host and --port"
        ) from None
    if not os.environ.get("BIDE_PG_BINDIR"):
        raise BenchError(
            "BIDE_PG_BINDIR is not set: name a bin folder with bide installed, or give --bindir, --host and --port"
        )
    with Cluster("bench", durable=True, conf=PRIVATE_CONF) as cluster:
        yield Server(cluster.bindir, str(cluster.socket_dir), str(PORT), SUPERUSER)


def _pgoptions(settings: dict[str, str]) -> str:
    return " ".join("-c " + f"{name}={value}".replace(" ", "\\ ") for name, value in settings.items())


def _parse(output: str) -> Run:
    def number(pattern: str, default: str | None = None) -> str:
        found = re.search(pattern, output)
        if found:
            return found.group(1)
        if default is None:
            raise BenchError(f"pgbench printed no {pattern!r}: {output}")
        return default

    return Run(
        tps=float(number(r"tps = ([\d.]+) \(without initial connection time\)")),
        latency_ms=float(number(r"latency average = ([\d.]+) ms")),
        transactions=int(number(r"number of transactions actually processed: (\d+)")),
        retries=int(number(r"total number of retries: (\d+)", "0")),
    )


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        return found.group(1) if found else os.uname().machine
    except OSError:
        return os.uname().machine


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
