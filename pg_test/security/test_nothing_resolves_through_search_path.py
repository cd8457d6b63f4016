# Promise 9: nobody who may not create objects in bide's own schema can make it run his code.
# C-143, C-145, C-146, C-147, C-148, C-149, C-151, C-153, C-159.
# Method: a role that may create schemas fills one with look-alikes of everything a call could resolve by name:
# functions, overloads that match better, operators for the exact type pairs, domains and tables, each of which
# raises when it runs. Every call is made with that schema on the path in every way, in a session that was there
# before and in a new one, on both paths, as a role that has only its set.
# Control: plain SQL in the same session does run them.

import psycopg
import pytest

from calls import insert, load_all
from functions import FUNCTIONS, fill
from waits import run_locks

NOT_PLAIN = "ALTER TABLE bide.steps ADD CONSTRAINT harmless CHECK (seq >= 0)"
DECOY_RAN = "58030"

PAIRS = [
    tuple(pair.split())
    for pair in """
        text text, int8 int8, int4 int4, int4 int8, int8 int4, int2 int2, bytea bytea, bool bool, timestamptz timestamptz,
        timestamptz interval, interval interval, float8 float8, oid oid, oid regclass, regclass oid, regclass regclass,
        oid regtype, name name, name text, text name, bpchar bpchar, "char" "char", text[] text[], name[] name[],
        int2[] int2[], xid xid, xid8 xid8, text text[], json json, jsonb jsonb, int8[] int8[], numeric numeric
    """.split(",")
]
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "+", "-", "||", "~~", "^@", "->", "->>")
# Functions a journal could call by a bare name, with argument types that match better than pg_catalog's.
CALLED = [
    signature.strip()
    for signature in """
        hashtextextended(text, int4); hashtextextended(text, int8); hashtext(text); pg_advisory_xact_lock(int8);
        clock_timestamp(); now(); starts_with(text, text); length(bytea); octet_length(bytea); octet_length(text);
        convert_to(text, text); convert_from(bytea, text); array_length(text[], int4); cardinality(text[]);
        left(text, int4); substr(text, int4); substring(text, int4); format(text, text); quote_ident(text);
        current_setting(text); set_config(text, text, bool); has_schema_privilege(text, text);
        has_function_privilege(oid, text); to_regclass(text); int8inc(int8); texteq(text, text); byteaeq(bytea, bytea);
        next_seq(text, text); version(); nextval(regclass); lower(text); encode(bytea, text); decode(text, text);
        to_jsonb(text); concat(text, text)
    """.split(";")
]
TABLES = (
    "steps leases stores schema_version origin"
    " pg_class pg_proc pg_namespace pg_index pg_attribute pg_constraint pg_roles"
).split()
DOMAINS = "text bytea bigint int8 integer int4 boolean bool timestamptz regclass oid name jsonb json".split()


def decoys(schema: str) -> str:
    """Everything in one schema; all of it raises `DECOY_RAN` when it runs."""
    raising = f"LANGUAGE plpgsql AS $$ BEGIN RAISE 'a decoy of {schema} ran' USING ERRCODE = '{DECOY_RAN}'; END $$"
    made = [f"CREATE FUNCTION {schema}.boom() RETURNS pg_catalog.bool {raising}"]
    for number, (left, right) in enumerate(PAIRS):
        left, right = (t if t.startswith('"') else f"pg_catalog.{t}" for t in (left, right))
        function = f"{schema}.boom_{number}"
        made.append(f"CREATE FUNCTION {function}({left}, {right}) RETURNS pg_catalog.bool {raising}")
        made += [
            f"CREATE OPERATOR {schema}.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = {function})"
            for operator in OPERATORS
        ]
    for signature in CALLED:
        name, arguments = signature.rstrip(")").split("(")
        arguments = ", ".join(f"pg_catalog.{a.strip()}" for a in arguments.split(",") if a.strip())
        made.append(f"CREATE FUNCTION {schema}.{name}({arguments}) RETURNS pg_catalog.int8 {raising}")
    for aggregate in ("max(pg_catalog.int8)", "count(pg_catalog.text)", "array_agg(pg_catalog.text)"):
        name, argument = aggregate.rstrip(")").split("(")
        made.append(
            f"CREATE FUNCTION {schema}.step_{name}(pg_catalog.int8, {argument}) RETURNS pg_catalog.int8 {raising}"
        )
        made.append(
            f"CREATE AGGREGATE {schema}.{name}({argument}) (SFUNC = {schema}.step_{name}, STYPE = pg_catalog.int8)"
        )
    for table in TABLES:
        # The right columns and a wrong answer: version 999, and a trigger that raises on every write.
        made.append(
            f"CREATE TABLE {schema}.{table} (run_id pg_catalog.text, seq pg_catalog.int8, name pg_catalog.text,"
            " data pg_catalog.bytea, id pg_catalog.int4 DEFAULT 1, version pg_catalog.int4 DEFAULT 999,"
            " holder pg_catalog.text, expiry pg_catalog.timestamptz)"
        )
        made.append(f"INSERT INTO {schema}.{table} DEFAULT VALUES")
        made.append(f"CREATE FUNCTION {schema}.write_{table}() RETURNS pg_catalog.trigger {raising}")
        made.append(
            f"CREATE TRIGGER boom BEFORE INSERT OR UPDATE OR DELETE ON {schema}.{table}"
            f" EXECUTE FUNCTION {schema}.write_{table}()"
        )
    for domain in DOMAINS:
        base = {"bigint": "int8", "integer": "int4", "boolean": "bool"}.get(domain, domain)
        made.append(f'CREATE DOMAIN {schema}."{domain}" AS pg_catalog.{base} CHECK ({schema}.boom())')
    return ";\n".join(made)


@pytest.fixture(scope="module", params=["direct", "spi"])
def attacked(cluster, request):
    """A database in which `mallory` may create schemas and has filled `decoy`, `app`'s own schema and `public`."""
    name, app, mallory = f"attacked_{request.param}", f"app_{request.param}", f"mallory_{request.param}"
    cluster.psql(f"CREATE DATABASE {name} TEMPLATE template0")
    roles = (
        f"CREATE ROLE {app} LOGIN; CREATE ROLE {mallory} LOGIN;"
        f"GRANT CREATE ON DATABASE {name} TO {mallory}; GRANT CREATE ON SCHEMA public TO {mallory};"
    )
    cluster.psql(f"CREATE EXTENSION bide; {roles} SELECT FROM bide.grant_access('{app}', 'admin');", dbname=name)
    if request.param == "spi":
        cluster.psql(NOT_PLAIN, dbname=name)
    with cluster.connect(dbname=name, user=app) as warm:
        fill(warm)
        for function in FUNCTIONS:
            if function.access != "admin":
                function.call(warm)
        for schema in ("decoy", app, "public"):
            made = f"CREATE SCHEMA IF NOT EXISTS {schema};" if schema != "public" else ""
            cluster.psql(
                f"SET search_path = pg_catalog; {made}\n{decoys(schema)};"
                f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO PUBLIC;",
                dbname=name,
                user=mallory,
            )
        yield Attacked(cluster, name, app, warm)
    cluster.psql(f"DROP DATABASE {name} WITH (FORCE)")
    cluster.psql(f"DROP ROLE {app}; DROP ROLE {mallory}")


class Attacked:
    def __init__(self, cluster, name, app, warm):
        self.cluster, self.name, self.app, self.warm = cluster, name, app, warm

    def connect(self, path: str | None = None, user: str | None = None) -> psycopg.Connection:
        settings = {} if path is None else {"search_path": path}
        return self.cluster.connect(dbname=self.name, user=user or self.app, settings=settings)


PATHS = [
    "decoy, pg_catalog",
    "decoy",
    '"$user", decoy, pg_catalog',
    "pg_catalog, decoy",
    "decoy, public",
    "public",
    '"$user", public',
    "",
]


def call_all(conn, run: str) -> None:
    """Every function, with results that tell whether bide's own tables were used."""
    known = len(load_all(conn, run))
    assert insert(conn, run, f"step {known}", b"data").seq == known
    assert insert(conn, run, f"step {known}", b"other") == (known, False, b"data")
    conn.execute(f"SELECT seq FROM bide.insert_json('{run}', 'j {known}', '[1]')")
    conn.execute(f"SELECT seq FROM bide.insert_many('{run}', '{{m {known}}}', '{{x}}')")
    conn.execute("SELECT run_id FROM bide.runs(exclude_holding => '{no}', lease_lapsed => true, prefix => 'a')")
    assert conn.execute("SELECT bide.schema_version()").fetchone() == (1,)
    for function in FUNCTIONS:
        if function.name not in ("purge_run", "grant_access"):
            function.call(conn)
    conn.execute("SELECT bide.purge_run('a finished run')")
    conn.execute("SELECT seq FROM bide.insert_many('a finished run', '{only,run:complete}', '{x,x}')")
    conn.execute("SELECT bide.purge_finished('infinity')")
    conn.execute("SELECT FROM bide.grant_access('pg_monitor', 'reader')")
    assert [step.seq for step in load_all(conn, run)] == list(range(known + 3))


@pytest.mark.core
@pytest.mark.parametrize("path", PATHS)
def test_no_decoy_runs(attacked, run, path):
    with attacked.connect(path) as fresh:
        call_all(fresh, f"{run} {path}")
    attacked.warm.execute("SELECT pg_catalog.set_config('search_path', %s, false)", (path,))
    call_all(attacked.warm, f"{run} {path}")
    with attacked.connect(path, user="postgres") as owner:
        call_all(owner, f"{run} {path}")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text",
        "SELECT 1::pg_catalog.int8 < 2::pg_catalog.int8",
        "SELECT hashtextextended('run'::pg_catalog.text, 0)",
        "SELECT max(1::pg_catalog.int8)",
        "SELECT 'x'::text",
        "SELECT ARRAY['a']::pg_catalog.text[] = ARRAY['a']::pg_catalog.text[]",
        "INSERT INTO steps DEFAULT VALUES",
        "SELECT version()",
    ],
)
def test_control_plain_sql_does_run_them(attacked, statement):
    with attacked.connect("decoy, pg_catalog") as conn:
        with pytest.raises(psycopg.Error) as ran:
            conn.execute(statement)
    assert ran.value.sqlstate == DECOY_RAN


@pytest.mark.core
def test_tables_of_the_session_are_not_used(attacked, run):
    """pg_temp comes first for tables, whatever the path says, unless it is named in it."""
    with attacked.connect() as conn:
        for table in TABLES:
            conn.execute(f"CREATE TEMP TABLE {table} (LIKE decoy.{table})")
            conn.execute(f"INSERT INTO pg_temp.{table} VALUES ('{run}', 77, 'temp', '', 1, 999)")
        call_all(conn, run)
        for table in ("steps", "leases", "stores", "schema_version"):
            assert conn.execute(f"SELECT pg_catalog.count(*) FROM pg_temp.{table}").fetchone() == (1,)


@pytest.mark.core
def test_decoy_tables_stay_as_they_were(attacked, run):
    with attacked.connect("decoy, pg_catalog") as conn, attacked.connect("pg_catalog", user="postgres") as owner:
        insert(conn, run, "step")
        for schema in ("decoy", "public"):
            for table in TABLES:
                assert owner.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone() == (1,)


@pytest.mark.core
def test_an_outsider_cannot_stall_a_run(attacked, run):
    """The advisory key that Go's nodes use is anybody's; the run lock of an own store cannot be named in SQL."""
    with attacked.connect("pg_catalog", user="postgres") as outsider, attacked.connect("pg_catalog") as conn:
        outsider.execute("SELECT pg_advisory_lock(hashtextextended(%s::text, 0))", (run,))
        conn.execute("SET statement_timeout = '20s'")
        assert insert(conn, run, "step").seq == 0
        outsider.execute("SELECT pg_advisory_unlock_all()")


@pytest.mark.core
def test_no_call_leaves_an_advisory_lock(attacked):
    with attacked.connect("pg_catalog", user="postgres") as conn:
        fill(conn)
        for function in FUNCTIONS:
            function.call(conn)
            held = conn.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
            assert held.fetchone() == (0,), function.name
        assert run_locks(conn) == []
