"""A pgbouncer of one's own in front of a cluster: private folder, Unix socket only, not root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

from cluster import PORT, SUPERUSER, Cluster
from waits import wait_until

POOLER_PORT = 65433  # names the socket file only
SERVERS = 2  # connections to the server that all clients share
STOP_S = 20


def program() -> str:
    for found in (shutil.which("pgbouncer"), "/usr/sbin/pgbouncer"):
        if found and os.access(found, os.X_OK):
            return found
    raise RuntimeError("pgbouncer is not installed: pg_test/setup.sh test brings it")


def version() -> tuple[int, int]:
    said = subprocess.run([program(), "--version"], text=True, capture_output=True, check=True).stdout
    major, minor = re.search(r"PgBouncer (\d+)\.(\d+)", said).groups()
    return int(major), int(minor)


def keeps_prepared_statements() -> bool:
    """In transaction mode, by following the protocol's prepared statements: from 1.21 on."""
    return version() >= (1, 21)


class Pooler:
    """`mode`: transaction or session. In transaction mode a client has a server for one transaction."""

    def __init__(self, cluster: Cluster, mode: str = "transaction", servers: int = SERVERS):
        owner = os.stat(cluster.data)
        self._identity = {}
        if owner.st_uid != os.geteuid():
            self._identity = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        self.folder = Path(tempfile.mkdtemp(prefix="pool-", dir=cluster.socket_dir))
        os.chown(self.folder, owner.st_uid, owner.st_gid)
        self.log = self.folder / "log"
        settings = {
            "pool_mode": mode,
            "default_pool_size": servers,
            "max_client_conn": 100,
            "auth_type": "any",
            "listen_addr": "",
            "listen_port": POOLER_PORT,
            "unix_socket_dir": self.folder,
            "logfile": self.log,
            "ignore_startup_parameters": "extra_float_digits,options",
            "server_reset_query": "DISCARD ALL",
        }
        if mode == "transaction" and keeps_prepared_statements():
            settings["max_prepared_statements"] = 100
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={cluster.socket_dir} port={PORT} user={SUPERUSER}\n\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        config.chmod(0o644)
        self._process = subprocess.Popen(
            [program(), "-q", config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            **self._identity,
        )
        socket = self.folder / f".s.PGSQL.{POOLER_PORT}"

        def listens():
            if self._process.poll() is not None:
                raise RuntimeError(f"pgbouncer ended with {self._process.returncode}: {self.log_text()}")
            return socket.exists()

        wait_until(listens, what="pgbouncer to listen")

    def connect(self, **kw) -> psycopg.Connection:
        """Autocommit and no prepared statements, unless told otherwise."""
        kw = {"autocommit": True, "prepare_threshold": None, "dbname": "postgres", "user": SUPERUSER, **kw}
        return psycopg.connect(host=str(self.folder), port=POOLER_PORT, **kw)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def __enter__(self) -> "Pooler":
        return self

    def __exit__(self, *_exc) -> None:
        self._process.terminate()
        self._process.wait(STOP_S)
        shutil.rmtree(self.folder, ignore_errors=True)
