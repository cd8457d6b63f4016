"""bide's functions as a client calls them: one SELECT each, parameters, rows as named tuples."""

from __future__ import annotations

import psycopg
from psycopg.rows import namedtuple_row

LEVELS = ("read committed", "repeatable read", "serializable")


def call(conn: psycopg.Connection, sql: str, *args):
    """All rows of one statement, as named tuples."""
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        cursor.execute(sql, args or None)
        return cursor.fetchall() if cursor.description else []


def insert(conn, run: str, name: str, data: bytes = b""):
    """(seq, inserted, stored)"""
    return call(conn, "SELECT seq, inserted, stored FROM bide.insert(%s, %s, %s)", run, name, data)[0]


def insert_many(conn, run: str, names: list[str], data: list[bytes]):
    """(name, seq, inserted) each"""
    return call(conn, "SELECT name, seq, inserted FROM bide.insert_many(%s, %s, %s)", run, names, data)


def get(conn, run: str, name: str):
    """(seq, data, recorded_at), or None"""
    rows = call(conn, "SELECT seq, data, recorded_at FROM bide.get(%s, %s)", run, name)
    return rows[0] if rows else None


def load(conn, run: str, after: int = -1, max_rows: int = 256):
    """One page: (seq, name, data, recorded_at) each"""
    return call(
        conn, "SELECT seq, name, data, recorded_at FROM bide.load(%s, %s, %s)", run, after, max_rows
    )


def load_all(conn, run: str):
    """The whole run, page by page; only an empty page is the end."""
    steps, after = [], -1
    while page := load(conn, run, after):
        steps += page
        after = page[-1].seq
    return steps


def runs(conn, after: str = "", prefix: str = "", max_rows: int = 500):
    return [
        row.run_id
        for row in call(
            conn, "SELECT run_id FROM bide.runs(after => %s, prefix => %s, max_rows => %s)", after, prefix, max_rows
        )
    ]


def allow_block(conn) -> None:
    """Inside a block: steps belong to this transaction."""
    conn.execute("SET LOCAL bide.transaction_block = allow")


def sqlstate_of(fn, *args) -> str | None:
    """The SQLSTATE `fn` fails with, None when it does not."""
    try:
        fn(*args)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def assert_gap_free(steps) -> None:
    """Positions are 0, 1, 2 … and no name occurs twice."""
    positions = [step.seq for step in steps]
    assert positions == list(range(len(steps))), f"positions are not 0..n-1: {positions[:50]}"
    names = [step.name for step in steps]
    assert len(set(names)) == len(names), "a name occurs twice"
