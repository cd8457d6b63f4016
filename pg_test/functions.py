"""bide's functions as they are promised: arguments, defaults, results and who may call them.

Tests that go over "every function" go over this list; security/test_function_definitions.py holds it
against the catalog, so that none can be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

SETS = ("reader", "writer", "worker", "admin")  # each contains the one before
STORE = ("store", "text", "'bide'::text")


@dataclass(frozen=True)
class Function:
    name: str
    access: str
    writes: bool  # to the journal: refused in a transaction block
    arguments: tuple[tuple[str, str, str | None], ...]  # name, type, default as the catalog prints it
    result: str
    # Values that make an ordinary call, for the arguments without a default.
    ordinary: tuple[object, ...] = ()

    @property
    def has_store(self) -> bool:
        return STORE in self.arguments

    def values(self, **changed) -> dict[str, object]:
        """An ordinary call's arguments, some replaced or added."""
        required = [name for name, _, default in self.arguments if default is None]
        return {**dict(zip(required, self.ordinary, strict=True)), **changed}

    def call(self, conn: psycopg.Connection, values: dict[str, object] | None = None):
        """All rows of one call with named arguments."""
        values = self.values() if values is None else values
        # Qualified where a name could be looked up; the others are key words.
        types = {
            name: f"pg_catalog.{kind}" if kind.rstrip("[]") in ("text", "bytea", "json", "jsonb") else kind
            for name, kind, _ in self.arguments
        }
        listed = ", ".join(f"{name} => %({name})s::{types[name]}" for name in self.arguments_of(values))
        return conn.execute(f"SELECT * FROM bide.{self.name}({listed})", values).fetchall()

    def arguments_of(self, values: dict[str, object]) -> list[str]:
        return [name for name, _, _ in self.arguments if name in values]


_FENCE = ("fence", "bigint", "0")
_PUBLISH = ("publish", "text", "''::text")
_WAKE = ("wake", "boolean", "false")
_RUN, _NAME = ("run_id", "text", None), ("name", "text", None)

FUNCTIONS = (
    Function(
        "insert",
        "writer",
        True,
        (_RUN, _NAME, ("data", "bytea", None), _FENCE, _PUBLISH, _WAKE, STORE),
        "TABLE(seq bigint, inserted boolean, stored bytea)",
        ("a run", "a step", b"data"),
    ),
    Function(
        "insert_json",
        "writer",
        True,
        (_RUN, _NAME, ("data", "json", None), _FENCE, _PUBLISH, _WAKE, STORE),
        "TABLE(seq bigint, inserted boolean, stored json)",
        ("a run", "a json step", '{"a": 1}'),
    ),
    Function(
        "insert_many",
        "writer",
        True,
        (_RUN, ("names", "text[]", None), ("data", "bytea[]", None), _FENCE, STORE),
        "TABLE(name text, seq bigint, inserted boolean)",
        ("a run", ["one", "two"], [b"1", b"2"]),
    ),
    Function(
        "get",
        "reader",
        False,
        (_RUN, _NAME, STORE),
        "TABLE(seq bigint, data bytea, recorded_at timestamp with time zone)",
        ("a run", "a step"),
    ),
    Function(
        "load",
        "reader",
        False,
        (_RUN, ("after", "bigint", "'-1'::integer"), ("max_rows", "integer", "256"), STORE),
        "TABLE(seq bigint, name text, data bytea, recorded_at timestamp with time zone)",
        ("a run",),
    ),
    Function(
        "runs",
        "reader",
        False,
        (
            ("after", "text", "''::text"),
            ("prefix", "text", "''::text"),
            ("exclude_holding", "text[]", "'{}'::text[]"),
            ("lease_lapsed", "boolean", "false"),
            ("max_rows", "integer", "500"),
            STORE,
        ),
        "TABLE(run_id text)",
    ),
    Function("next_seq", "writer", True, (_RUN, STORE), "bigint", ("a run",)),
    Function("purge_run", "admin", True, (_RUN, ("force", "boolean", "false"), STORE), "bigint", ("a finished run",)),
    Function(
        "purge_finished",
        "admin",
        True,
        (("before", "timestamp with time zone", None), ("max_runs", "integer", "1000"), STORE),
        "bigint",
        ("1999-01-01 00:00:00+00",),
    ),
    Function("schema_version", "reader", False, (STORE,), "integer"),
    Function("check_schema", "reader", False, (("expected", "integer", None), STORE), "void", (1,)),
    Function("version", "reader", False, (), "text"),
    Function("to_cbor", "reader", False, (("document", "jsonb", None),), "bytea", ('{"a": 1}',)),
    Function("from_cbor", "reader", False, (("data", "bytea", None),), "jsonb", (b"\xa1aa\x01",)),
    Function(
        "grant_access",
        "admin",
        False,
        (("role", "text", None), ("access", "text", None), STORE),
        "void",
        ("pg_monitor", "reader"),
    ),
)
BY_NAME = {function.name: function for function in FUNCTIONS}
WRITING = tuple(f for f in FUNCTIONS if f.writes)
# Those that look at the store's tables.
ON_TABLES = tuple(f for f in FUNCTIONS if f.has_store and f.name != "grant_access")

END_NAME = "run:complete"

# A text with all that drivers, shells and servers like to change.
AWKWARD = "back\\slash \\n \\x00 \\\\ newline\n tab\t quote\" apostrophe' dollar$$ percent% colon:a \u2028 emoji 🚀é"


def ids(items) -> list[str]:
    return [getattr(item, "name", str(item)) for item in items]


def fill(conn: psycopg.Connection) -> None:
    """Runs for the ordinary calls above to find: one open, one finished."""
    conn.execute("SELECT seq FROM bide.insert('a run', 'zeroth', 'data'::bytea)")
    conn.execute("SELECT seq FROM bide.insert('a finished run', 'only', 'data'::bytea)")
    conn.execute(f"SELECT seq FROM bide.insert('a finished run', '{END_NAME}', ''::bytea)")


def everything(conn: psycopg.Connection) -> list:
    """Each row of the store's tables with its physical place: equal before and after when nothing was written."""
    tables = conn.execute(
        "SELECT c.oid::pg_catalog.regclass::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_depend AS d"
        " ON d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'"
        " JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'bide'"
        " WHERE c.relkind IN ('r', 'p') ORDER BY 1"
    ).fetchall()
    return [
        (
            table,
            conn.execute(f"SELECT t.ctid::text, t.xmin::text, t::text FROM {table} AS t ORDER BY t.ctid").fetchall(),
        )
        for (table,) in tables
    ]
