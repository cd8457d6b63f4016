"""Fixtures all tests share: the cluster, a database of one's own, run ids nobody else uses."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
from dataclasses import dataclass

import psycopg
import pytest

from cluster import Cluster

_skipped: list[str] = []
_databases = itertools.count(1)


# -- the session: a skipped test is a test that did not run -------------------------------------


def pytest_configure():
    """A session that is told to end still stops its servers."""

    def end(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


def pytest_runtest_logreport(report):
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_collectreport(report):
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session, exitstatus):
    if _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for nodeid in _skipped:
        terminalreporter.write_line(f"SKIPPED counts as failed: {nodeid}", red=True)


# -- the server ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def major() -> int:
    return int(os.environ["BIDE_MAJOR"])


@pytest.fixture(scope="session")
def cluster():
    """One server for the session, bide in its database `postgres`. Tests that change settings,
    tables or the server itself take `db`, or a cluster of their own."""
    with Cluster("main") as made:
        made.psql("CREATE EXTENSION bide")
        yield made
        made.assert_log_clean()


@pytest.fixture
def conn(cluster) -> psycopg.Connection:
    with cluster.connect() as opened:
        yield opened


@pytest.fixture
def watcher(cluster) -> psycopg.Connection:
    """A session that only watches: locks, activity, what is committed."""
    with cluster.connect() as opened:
        yield opened


@dataclass
class Database:
    """A database that one test may ruin."""

    cluster: Cluster
    name: str
    path: str = "direct"

    def connect(self, **kw) -> psycopg.Connection:
        return self.cluster.connect(dbname=self.name, **kw)

    def psql(self, sql: str, **kw) -> str:
        return self.cluster.psql(sql, dbname=self.name, **kw)

    def amcheck(self, table: str) -> None:
        self.cluster.amcheck(table, dbname=self.name)


@pytest.fixture
def make_db(cluster):
    """Makes databases with the extension; they are dropped at the end of the test."""
    made: list[str] = []

    def make(extension: bool = True) -> Database:
        database = Database(cluster, f"db_{next(_databases)}")
        cluster.psql(f"CREATE DATABASE {database.name} TEMPLATE template0")
        made.append(database.name)
        if extension:
            database.psql("CREATE EXTENSION bide")
        return database

    yield make
    for name in made:
        cluster.psql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def db(make_db) -> Database:
    """A fresh database with the extension, for tests that tamper with its tables."""
    return make_db()


# -- the two paths --------------------------------------------------------------------------------

# A harmless constraint: with it the steps table is not plain, and calls go through SPI.
NOT_PLAIN = "ALTER TABLE bide.steps ADD CONSTRAINT harmless CHECK (seq >= 0)"


@pytest.fixture(scope="session")
def direct_db(cluster) -> Database:
    """Plain tables: index descents and one insert at the executor's level."""
    return Database(cluster, "postgres")


@pytest.fixture(scope="session")
def spi_db(cluster) -> Database:
    """Tables that are not plain: the same calls through kept SPI plans."""
    cluster.psql("CREATE DATABASE through_spi TEMPLATE template0")
    database = Database(cluster, "through_spi")
    database.psql(f"CREATE EXTENSION bide; {NOT_PLAIN}")
    return database


@pytest.fixture(params=["direct", "spi"])
def path_db(request) -> Database:
    """A test that takes this runs on both paths; `.path` says which."""
    database = request.getfixturevalue(f"{request.param}_db")
    database.path = request.param
    return database


# -- names and chance ---------------------------------------------------------------------------


@pytest.fixture
def run(request) -> str:
    """A run id that no other test uses; also good as a prefix: f"{run}/7"."""
    digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    return f"{request.node.name.split('[')[0].removeprefix('test_')[:40]}-{digest}"


@pytest.fixture
def rng():
    """Random numbers from a printed seed; BIDE_SEED=n repeats a failure."""
    seed = int(os.environ.get("BIDE_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed: {seed} (repeat with BIDE_SEED={seed})")
    return random.Random(seed)
