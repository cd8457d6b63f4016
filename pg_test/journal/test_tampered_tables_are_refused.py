# Tables that are not what they must be are refused with 55000 before anything is written, naming the object, what
# is missing and what to do: the schema's version in both directions, the kind of each table, its columns, and each
# uniqueness that correctness rests on.  C-171, C-172, C-173; issue: tables tampered with.
# Method: a change by the superuser; then every function on those tables in a session that had used them before and
# in a new one; then the change is undone and both work again. Also what must still be accepted.
# Control: the calls work before the change and after its undoing, in the same sessions.

import contextlib

import psycopg
import pytest

from calls import assert_gap_free, insert, load_all, sqlstate_of
from functions import ON_TABLES, everything, fill

# Answer what is stored, so that one can ask.
ASKING = ("schema_version", "check_schema")
CALLS = tuple(f for f in ON_TABLES if f.name not in ASKING)
RUN = "run of before"


class Shared:
    """One database for the tests that undo what they did; a new one after a test that failed."""

    def __init__(self, cluster):
        self._cluster, self._made, self._broken = cluster, 0, True

    @contextlib.contextmanager
    def use(self):
        if self._broken:
            self.drop()
            self._made += 1
            self._database = f"tampered_{self._made}"
            self._cluster.psql(f"CREATE DATABASE {self._database} TEMPLATE template0")
            self._cluster.psql("CREATE EXTENSION bide", dbname=self._database)
        self._broken = True
        yield self
        self._broken = False

    def connect(self):
        return self._cluster.connect(dbname=self._database)

    def drop(self):
        if self._made:
            self._cluster.psql(f"DROP DATABASE {self._database} WITH (FORCE)")


@pytest.fixture(scope="module")
def shared(cluster):
    made = Shared(cluster)
    yield made
    made.drop()


@pytest.fixture
def tampered(shared):
    """`tampered(change, undo, *words)`: between them every call must be refused with those words in the error."""

    def check(change, undo, *words, sqlstate="55000", calls=CALLS, db=None):
        if db is None:
            with shared.use() as db:
                return check(change, undo, *words, sqlstate=sqlstate, calls=calls, db=db)
        with db.connect() as owner, db.connect() as warm:
            fill(warm)
            before = load_all(warm, "a run")
            for statement in [change] if isinstance(change, str) else change:
                owner.execute(statement)
            rows = everything(owner)
            for session in ("warm", "new"):
                conn = warm if session == "warm" else db.connect()
                for function in calls:
                    refusal_of(function, conn, sqlstate, words, session)
                if session == "new":
                    conn.close()
            assert everything(owner) == rows, "nothing was written"
            for statement in [undo] if isinstance(undo, str) else undo:
                owner.execute(statement)
            with db.connect() as fresh:
                for conn in (warm, fresh):
                    assert load_all(conn, "a run")[: len(before)] == before
                    assert insert(conn, "a run", f"after {conn.info.backend_pid}").inserted
                assert_gap_free(load_all(fresh, "a run"))
        return db

    return check


def refusal_of(function, conn, sqlstate, words, session):
    with pytest.raises(psycopg.Error) as refused:
        function.call(conn)
    diag = refused.value.diag
    said = " ".join(filter(None, (diag.message_primary, diag.message_detail, diag.message_hint)))
    assert diag.sqlstate == sqlstate, f"{function.name}, {session} session: {diag.sqlstate} {said}"
    for word in words:
        assert word in said, f"{function.name}, {session} session: {word!r} is not in: {said}"
    assert diag.message_detail and diag.message_hint, said


# -- the version, both directions -----------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize(
    "version, advice", [(2, "newer library"), (0, "ALTER EXTENSION bide UPDATE"), (-5, "ALTER EXTENSION bide UPDATE")]
)
def test_another_schema_version(tampered, version, advice):
    set_to = "UPDATE bide.schema_version SET version = {}"
    db = tampered(set_to.format(version), set_to.format(1), f"version {version}", "1", advice)
    with db.connect() as conn:
        conn.execute(set_to.format(version))
        assert conn.execute("SELECT bide.schema_version()").fetchone() == (version,), "one can ask"
        conn.execute(f"SELECT FROM bide.check_schema({version})")
        assert sqlstate_of(conn.execute, "SELECT FROM bide.check_schema(1)") == "55000"
        conn.execute(set_to.format(1))


@pytest.mark.core
def test_no_schema_version(tampered):
    tampered(
        "DELETE FROM bide.schema_version",
        "INSERT INTO bide.schema_version VALUES (1, 1)",
        "no schema version",
        calls=ON_TABLES,
    )


# -- kinds ----------------------------------------------------------------------------------------

KINDS = {
    "view": ("CREATE VIEW public.other AS SELECT * FROM {old}", "VIEW"),
    "materialized view": ("CREATE MATERIALIZED VIEW public.other AS SELECT * FROM {old}", "MATERIALIZED VIEW"),
    "sequence": ("CREATE SEQUENCE public.other", "SEQUENCE"),
    "composite type": ("CREATE TYPE public.other AS (run_id text, seq bigint, name text, data bytea)", "TYPE"),
    "unlogged": ("CREATE UNLOGGED TABLE public.other (LIKE {old} INCLUDING ALL)", "TABLE"),
    "index": ("CREATE INDEX other ON {old} ((1))", None),
}


@pytest.mark.core
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["steps", "leases", "version"])
def test_a_store_that_names_no_table(tampered, column, kind):
    """Only by a change of the table `stores`: a rename or a view under the old name changes nothing."""
    old = "bide.schema_version" if column == "version" else f"bide.{column}"
    make = KINDS[kind][0].format(old=old)
    other = "bide.other" if kind == "index" else "public.other"
    set_to = "UPDATE bide.stores SET {} = '{}'"
    unmake = f"DROP {KINDS[kind][1] or 'INDEX'} {other}"
    tampered([make, set_to.format(column, other)], [set_to.format(column, old), unmake], "other")


@pytest.mark.core
def test_a_foreign_table(tampered, make_db):
    make = [
        "CREATE EXTENSION file_fdw",
        "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw",
        'CREATE FOREIGN TABLE public.other (run_id text COLLATE "C", seq bigint, name text COLLATE "C", data bytea,'
        " recorded_at timestamptz) SERVER files OPTIONS (filename '/dev/null')",
        "UPDATE bide.stores SET steps = 'public.other'",
    ]
    tampered(make, "UPDATE bide.stores SET steps = 'bide.steps'", "other", db=make_db())


@pytest.mark.core
@pytest.mark.parametrize("table, column", [("steps", "steps"), ("leases", "leases"), ("schema_version", "version")])
def test_a_dropped_table(tampered, make_db, table, column):
    drop = [
        f"ALTER EXTENSION bide DROP TABLE bide.{table}",
        f"CREATE TABLE public.kept (LIKE bide.{table} INCLUDING ALL)",
        f"INSERT INTO public.kept SELECT * FROM bide.{table}",
        f"DROP TABLE bide.{table}",
    ]
    calls = CALLS if column != "version" else ON_TABLES
    tampered(drop, f"UPDATE bide.stores SET {column} = 'public.kept'", "missing", table, calls=calls, db=make_db())


@pytest.mark.core
def test_a_store_without_its_row(tampered):
    tampered(
        "DELETE FROM bide.stores",
        "INSERT INTO bide.stores VALUES ('bide', 'bide.steps', 'bide.leases', 'bide.schema_version')",
        '"bide"',
        sqlstate="42704",
        calls=ON_TABLES,
    )


# -- columns --------------------------------------------------------------------------------------

COLUMNS = {
    "no data": (
        "ALTER TABLE bide.steps RENAME data TO payload",
        "ALTER TABLE bide.steps RENAME payload TO data",
        "data",
    ),
    "no name": ("ALTER TABLE bide.steps RENAME name TO step", "ALTER TABLE bide.steps RENAME step TO name", "name"),
    "no expiry": (
        "ALTER TABLE bide.leases RENAME expiry TO until",
        "ALTER TABLE bide.leases RENAME until TO expiry",
        "expiry",
    ),
    "data is text": (
        "ALTER TABLE bide.steps ALTER data TYPE text USING encode(data, 'hex')",
        "ALTER TABLE bide.steps ALTER data TYPE bytea USING decode(data, 'hex')",
        "data",
    ),
    "seq is int4": (
        "ALTER TABLE bide.steps ALTER seq TYPE int",
        "ALTER TABLE bide.steps ALTER seq TYPE bigint",
        "seq",
    ),
    "run_id in another collation": (
        'ALTER TABLE bide.steps ALTER run_id TYPE text COLLATE "default"',
        'ALTER TABLE bide.steps ALTER run_id TYPE text COLLATE "C"',
        "run_id",
    ),
}


@pytest.mark.parametrize("what", COLUMNS)
def test_changed_columns(tampered, what):
    change, undo, word = COLUMNS[what]
    tampered(change, undo, word)


# -- uniqueness -----------------------------------------------------------------------------------

# Table, constraint, its columns, one column more.
KEYS = {
    "steps (run_id, seq)": ("steps", "steps_run_id_seq_key", "UNIQUE", "run_id, seq", "recorded_at"),
    "steps (run_id, name)": ("steps", "steps_pkey", "PRIMARY KEY", "run_id, name", "seq"),
    "leases (run_id)": ("leases", "leases_pkey", "PRIMARY KEY", "run_id", "holder"),
}
WORSE = {
    "missing": "SELECT 1",
    "wider": "CREATE UNIQUE INDEX other ON bide.{table} ({columns}, {more})",
    "narrower": "CREATE INDEX other ON bide.{table} (run_id)",
    "deferrable": "ALTER TABLE bide.{table} ADD CONSTRAINT other UNIQUE ({columns}) DEFERRABLE",
    "partial": "CREATE UNIQUE INDEX other ON bide.{table} ({columns}) WHERE run_id <> ''",
    "not unique": "CREATE INDEX other ON bide.{table} ({columns})",
    "with included columns": "CREATE UNIQUE INDEX other ON bide.{table} ({columns}) INCLUDE ({more})",
    "on an expression": "CREATE UNIQUE INDEX other ON bide.{table} ((run_id || ''), {columns})",
}
BETTER = {
    "a constraint of another name": "ALTER TABLE bide.{table} ADD CONSTRAINT other UNIQUE ({columns})",
    "an index without a constraint": "CREATE UNIQUE INDEX other ON bide.{table} ({columns})",
    "the columns in another order": "CREATE UNIQUE INDEX other ON bide.{table} ({reversed})",
    "in descending order": "CREATE UNIQUE INDEX other ON bide.{table} ({descending})",
    "nulls first": "CREATE UNIQUE INDEX other ON bide.{table} ({nulls_first})",
}


@pytest.mark.core
@pytest.mark.parametrize("how", WORSE)
@pytest.mark.parametrize("key", KEYS)
def test_a_lost_uniqueness(tampered, key, how):
    table, constraint, kind, columns, more = KEYS[key]
    change = [
        f"ALTER TABLE bide.{table} DROP CONSTRAINT {constraint}",
        WORSE[how].format(table=table, columns=columns, more=more),
    ]
    undo = [
        f"ALTER TABLE bide.{table} DROP CONSTRAINT IF EXISTS other",
        "DROP INDEX IF EXISTS bide.other",
        f"ALTER TABLE bide.{table} ADD CONSTRAINT {constraint} {kind} ({columns})",
    ]
    tampered(change, undo, table, columns)


@pytest.mark.parametrize("key", KEYS)
def test_an_invalid_index_is_none(tampered, key):
    """As a failed CREATE INDEX CONCURRENTLY leaves it."""
    table, constraint, _kind, columns, _more = KEYS[key]
    set_to = f"UPDATE pg_catalog.pg_index SET indisvalid = {{}} WHERE indexrelid = 'bide.{constraint}'::regclass"
    tampered(set_to.format("false"), set_to.format("true"), table, columns)


@pytest.mark.core
@pytest.mark.parametrize("how", BETTER)
@pytest.mark.parametrize("key", KEYS)
def test_another_index_will_do(db, run, key, how):
    """Any valid, immediate, whole unique index on exactly those columns, in any order: right results on it."""
    table, constraint, _kind, columns, _more = KEYS[key]
    parts = columns.split(", ")
    make = BETTER[how].format(
        table=table,
        columns=columns,
        reversed=", ".join(reversed(parts)),
        descending=", ".join(f"{part} DESC" for part in parts),
        nulls_first=", ".join(f"{part} ASC NULLS FIRST" for part in parts),
    )
    with db.connect() as owner, db.connect() as warm:
        fill(warm)
        owner.execute(f"ALTER TABLE bide.{table} DROP CONSTRAINT {constraint}")
        owner.execute(make)
        with db.connect() as fresh:
            for number, conn in enumerate((warm, fresh, warm)):
                assert insert(conn, run, f"step {number}", b"data") == (number, True, None)
                assert insert(conn, run, f"step {number}", b"other") == (number, False, b"data")
                for function in ON_TABLES:
                    if not function.name.startswith("purge"):
                        function.call(conn)
        for other in ("a", "zz", run + "0"):
            insert(owner, other, "step")
        listed = [row[0] for row in owner.execute("SELECT run_id FROM bide.runs(max_rows => 3)").fetchall()]
        assert listed == sorted([*{"a", "zz", run, run + "0", "a run", "a finished run"}], key=str.encode)[:3]
        assert_gap_free(load_all(owner, run))
    db.amcheck("bide.steps")
