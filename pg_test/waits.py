"""Waiting for a condition, with a deadline that prints the last value seen. Never a bare sleep."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

import psycopg

T = TypeVar("T")
POLL_S = 0.01
DEADLINE_S = 30.0


def wait_until(fn: Callable[[], T], deadline_s: float = DEADLINE_S, what: str = "the condition") -> T:
    """Calls `fn` until it gives something true and returns that."""
    end = time.monotonic() + deadline_s
    while True:
        last = fn()
        if last:
            return last
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s} s for {what}; last value: {last!r}")
        time.sleep(POLL_S)


def pid_of(conn: psycopg.Connection) -> int:
    return conn.info.backend_pid


def wait_blocked(
    conn: psycopg.Connection, pid: int, by: int | None = None, deadline_s: float = DEADLINE_S
) -> list[int]:
    """Waits until backend `pid` waits for another's lock (`by`: for that one's). `conn` only watches."""

    def blockers():
        found = conn.execute("SELECT pg_catalog.pg_blocking_pids(%s)", (pid,)).fetchone()[0]
        return found if found and (by is None or by in found) else None

    try:
        return wait_until(blockers, deadline_s, f"backend {pid} to be blocked by {by or 'anyone'}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {activity(conn, pid)}") from None


def wait_for_run_lock(
    conn: psycopg.Connection, pid: int, by: int | None = None, deadline_s: float = DEADLINE_S
) -> list[int]:
    """As `wait_blocked`, and what it waits for is a run lock."""
    found = wait_blocked(conn, pid, by, deadline_s)
    waiting = [lock for lock in run_locks(conn, pid) if not lock[1]]
    if not waiting:
        raise AssertionError(f"backend {pid} waits for something else: {activity(conn, pid)}")
    return found


def wait_ungranted(conn: psycopg.Connection, count: int, deadline_s: float = DEADLINE_S) -> int:
    """Waits until at least `count` backends wait for run locks of this database."""

    def waiting():
        found = conn.execute(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 3"
            " AND NOT granted AND database = (SELECT oid FROM pg_catalog.pg_database"
            " WHERE datname = pg_catalog.current_database())"
        ).fetchone()[0]
        return found if found >= count else None

    return wait_until(waiting, deadline_s, f"{count} backends to queue on run locks")


def run_locks(conn: psycopg.Connection, pid: int | None = None) -> list[tuple[int, bool]]:
    """Run locks of this database as (pid, granted): advisory class 3, which SQL cannot take."""
    return conn.execute(
        "SELECT pid, granted FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 3"
        " AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"
        " AND (%s::int IS NULL OR pid = %s::int) ORDER BY granted DESC, pid",
        (pid, pid),
    ).fetchall()


def wait_idle(conn: psycopg.Connection, pid: int, deadline_s: float = DEADLINE_S) -> None:
    """Waits until backend `pid` has nothing to do, in or outside a transaction."""
    wait_until(
        lambda: conn.execute(
            "SELECT state FROM pg_catalog.pg_stat_activity WHERE pid = %s AND state LIKE 'idle%%'", (pid,)
        ).fetchone(),
        deadline_s,
        f"backend {pid} to be idle",
    )


def activity(conn: psycopg.Connection, pid: int):
    return conn.execute(
        "SELECT state, wait_event_type, wait_event, query FROM pg_catalog.pg_stat_activity WHERE pid = %s", (pid,)
    ).fetchone()
