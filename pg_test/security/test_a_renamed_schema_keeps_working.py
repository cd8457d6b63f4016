# A renamed schema, or table, keeps working in sessions from before and in new ones, whatever the new name is.
# C-156, C-157, C-170, C-177; design.md 3 (no name is looked up through search_path).
# Method: a database of its own, both paths; rename, make every call by the new name in a warm and in a new
# session, rename back and go on. Names with quotes, dots, capitals, Cyrillic, emoji, full length, SQL in them.
# Control: the old name is gone: a call by it fails with 3F000.

import pytest
from psycopg import sql

from calls import assert_gap_free, load_all, sqlstate_of
from functions import fill

NOT_PLAIN = "ALTER TABLE bide.steps ADD CONSTRAINT harmless CHECK (seq >= 0)"
NAMES = [
    'we"ird',
    "a.b",
    "MixedCase",
    "Схема 🚀",
    "x" * 63,
    "y" * 64,
    "z" * 87,
    "ж" * 33 + "x",
    '--$1\'; DROP TABLE "steps"; /*',
    "Pg_upper",
    "information_schema2",
    "my pg_x",
    "steps",
    "select",
    "public 2",
]


@pytest.fixture(scope="module", params=["direct", "spi"])
def renamed(cluster, request):
    """A database for the module; its name."""
    name = f"renamed_{request.param}"
    cluster.psql(f"CREATE DATABASE {name} TEMPLATE template0")
    cluster.psql(f"CREATE EXTENSION bide; {NOT_PLAIN if request.param == 'spi' else ''}", dbname=name)
    cluster.psql(f"CREATE ROLE renamed_{request.param} LOGIN", dbname=name)
    yield name
    cluster.psql(f"DROP DATABASE {name} WITH (FORCE)")
    cluster.psql(f"DROP ROLE renamed_{request.param}")


def call_all(conn, schema: str, run: str, role: str) -> None:
    """Every function, by the schema's present name; the run grows by four steps."""

    def rows(text: str, *values):
        return conn.execute(sql.SQL(text).format(s=sql.Identifier(schema)), values).fetchall()

    first = len(rows("SELECT seq FROM {s}.load(%s)", run))
    for n in range(2):
        assert rows("SELECT seq, inserted FROM {s}.insert(%s, %s, %s)", run, f"step {first + n}", b"x") == [
            (first + n, True)
        ]
    assert rows("SELECT seq FROM {s}.insert_json(%s, %s, '[]')", run, f"json {first}") == [(first + 2,)]
    many = "SELECT seq, inserted FROM {s}.insert_many(%s, %s, %s)"
    assert rows(many, run, [f"step {first}", f"many {first}"], [b"", b""]) == [(first, False), (first + 3, True)]
    assert rows("SELECT data FROM {s}.get(%s, %s)", run, f"step {first}") == [(b"x",)]
    assert rows("SELECT {s}.next_seq(%s)", run) == [(first + 4,)]
    assert (run,) in rows("SELECT run_id FROM {s}.runs(exclude_holding => '{{run:complete}}')")
    assert rows("SELECT {s}.schema_version(), {s}.version() <> ''") == [(1, True)]
    rows("SELECT FROM {s}.check_schema(1)")
    rows("SELECT FROM {s}.grant_access(%s, 'writer')", role)
    rows("SELECT seq FROM {s}.insert_many('done', '{{only,run:complete}}', '{{x,x}}')")
    assert rows("SELECT {s}.purge_finished('infinity')") != [(0,)]
    rows("SELECT seq FROM {s}.insert('open', 'step', '')")
    rows("SELECT {s}.purge_run('open', true)")
    assert rows("SELECT seq FROM {s}.load('open')") == rows("SELECT seq FROM {s}.load('done')") == []


@pytest.mark.core
@pytest.mark.parametrize("name", NAMES)
def test_any_name_works_in_old_and_new_sessions(cluster, renamed, name):
    run, role = f"run {name}", renamed
    rename = sql.SQL("ALTER SCHEMA {} RENAME TO {}")
    with cluster.connect(dbname=renamed) as warm, cluster.connect(dbname=renamed) as owner:
        call_all(warm, "bide", run, role)
        owner.execute(rename.format(sql.Identifier("bide"), sql.Identifier(name)))
        actual = owner.execute(
            "SELECT n.nspname FROM pg_extension e"
            " JOIN pg_depend d ON d.refobjid = e.oid AND d.classid = 'pg_namespace'::regclass"
            " JOIN pg_namespace n ON n.oid = d.objid WHERE e.extname = 'bide' AND d.deptype = 'e'"
        ).fetchone()[0]
        try:
            call_all(warm, actual, run, role)
            with cluster.connect(dbname=renamed) as fresh:
                call_all(fresh, actual, run, role)
                by_old_name = sqlstate_of(fresh.execute, "SELECT seq FROM bide.insert('r', 'n', '')")
                assert by_old_name == "3F000", "control: the old name is gone"
        finally:
            owner.execute(rename.format(sql.Identifier(actual), sql.Identifier("bide")))
        call_all(warm, "bide", run, role)
        assert_gap_free(load_all(owner, run))


@pytest.mark.core
def test_renamed_and_moved_tables_are_followed(make_db, run):
    db = make_db()
    with db.connect() as warm, db.connect() as owner:
        fill(warm)
        call_all(warm, "bide", run, "pg_monitor")
        changes = [
            "ALTER TABLE bide.steps RENAME TO \"Steps of 'old'\"",
            "ALTER TABLE bide.leases RENAME TO l",
            "ALTER TABLE bide.schema_version RENAME TO v",
            "CREATE SCHEMA elsewhere",
            "ALTER TABLE bide.\"Steps of 'old'\" SET SCHEMA elsewhere",
        ]
        for change in changes:
            moved = sqlstate_of(owner.execute, change)
            assert moved in (None, "0A000"), f"{change}: {moved}"  # a member table of a fixed schema may not move
            call_all(warm, "bide", run, "pg_monitor")
            with db.connect() as fresh:
                call_all(fresh, "bide", run, "pg_monitor")
        assert_gap_free(load_all(owner, run))


@pytest.mark.core
def test_a_look_alike_under_the_old_name_is_not_used(make_db, run):
    """Who recreates schema bide after a rename gets none of its calls."""
    db = make_db()
    with db.connect() as warm, db.connect() as owner:
        call_all(warm, "bide", run, "pg_monitor")
        owner.execute("ALTER SCHEMA bide RENAME TO moved")
        owner.execute("CREATE SCHEMA bide")
        for table in ("steps", "leases", "stores", "schema_version"):
            owner.execute(f"CREATE TABLE bide.{table} (LIKE moved.{table} INCLUDING ALL)")
        call_all(warm, "moved", run, "pg_monitor")
        with db.connect() as fresh:
            call_all(fresh, "moved", run, "pg_monitor")
        assert owner.execute("SELECT count(*) FROM bide.steps").fetchone() == (0,)


def test_names_of_the_system_stay_refused(make_db):
    """Postgres refuses to rename a schema to one of its own, so bide cannot end up there."""
    db = make_db()
    with db.connect() as owner:
        assert sqlstate_of(owner.execute, "ALTER SCHEMA bide RENAME TO pg_bide") == "42939"
        assert sqlstate_of(owner.execute, "ALTER SCHEMA bide RENAME TO information_schema") == "42P06"
        fill(owner)
