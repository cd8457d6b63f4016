# A role gets one of four sets and nothing else: EXECUTE on its functions, never a right on a table. Who has
# none is refused before he makes anybody wait. PUBLIC has nothing.  Promise 9; C-162; design.md 4 (rights).
# Method: a role for each set and one without, every function and every relation of the extension, found in the
# catalog; then a held run lock, at which a role without rights must fail at once and not queue.
# Control: the same call by a role with the set does queue at that lock; a role that may CREATE can read its own table.

import itertools

import psycopg
import pytest
from psycopg import sql

from calls import allow_block, insert, load_all, sqlstate_of
from functions import BY_NAME, FUNCTIONS, SETS, WRITING, fill, ids
from racing import Background
from waits import pid_of, run_locks, wait_for_run_lock

_roles = itertools.count(1)

MEMBERS = """
SELECT d.classid::pg_catalog.regclass::text, d.objid FROM pg_catalog.pg_depend AS d
JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_extension'::regclass
WHERE e.extname = 'bide' AND d.deptype = 'e'
"""
PUBLIC_RIGHTS = f"""
WITH members (class, oid) AS ({MEMBERS}), lists AS (
    SELECT 'schema ' || n.nspname AS object, COALESCE(n.nspacl, pg_catalog.acldefault('n', n.nspowner)) AS acl
    FROM pg_catalog.pg_namespace AS n JOIN members ON class = 'pg_namespace' AND members.oid = n.oid
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure::text, COALESCE(p.proacl, pg_catalog.acldefault('f', p.proowner))
    FROM pg_catalog.pg_proc AS p JOIN members ON class = 'pg_proc' AND members.oid = p.oid
    UNION ALL
    SELECT 'relation ' || c.oid::regclass::text,
        COALESCE(c.relacl, pg_catalog.acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", c.relowner))
    FROM pg_catalog.pg_class AS c JOIN members ON class = 'pg_class' AND members.oid = c.oid
    UNION ALL
    SELECT 'column of ' || c.oid::regclass::text, a.attacl FROM pg_catalog.pg_class AS c
    JOIN members ON class = 'pg_class' AND members.oid = c.oid
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attacl IS NOT NULL
)
SELECT object, privilege_type FROM lists, pg_catalog.aclexplode(acl) WHERE grantee = 0
"""
RELATIONS = f"""
WITH members (class, oid) AS ({MEMBERS})
SELECT n.nspname, c.relname, c.relkind::text FROM pg_catalog.pg_class AS c
JOIN members ON class = 'pg_class' AND members.oid = c.oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'S') ORDER BY 2
"""
IN_A_TABLE = (
    "SELECT FROM {}",
    "INSERT INTO {} SELECT * FROM {}",
    "INSERT INTO {} DEFAULT VALUES",
    "DELETE FROM {}",
    "TRUNCATE {}",
    "LOCK TABLE {} IN ACCESS SHARE MODE",
    "LOCK TABLE {}",
    "SELECT FROM {} FOR UPDATE",
    "ALTER TABLE {} DISABLE TRIGGER ALL",
    "DROP TABLE {}",
    "CREATE INDEX ON {} ((1))",
)
IN_A_SEQUENCE = ("SELECT nextval({})", "SELECT setval({}, 1)", "SELECT FROM {}")


@pytest.fixture
def make_role(db):
    """Makes login roles with a set, or with none."""
    made = []

    def make(access: str | None) -> str:
        role = f"app_{access or 'none'}_{next(_roles)}"
        with db.connect() as owner:
            owner.execute(f"CREATE ROLE {role} LOGIN")
            made.append(role)
            if access:
                owner.execute("SELECT FROM bide.grant_access(%s, %s)", (role, access))
        return role

    yield make
    with db.connect() as owner:
        for role in made:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


def as_role(db, role: str, **settings) -> psycopg.Connection:
    return db.connect(user=role, settings=settings)


@pytest.mark.core
def test_public_has_nothing(db):
    with db.connect() as owner:
        assert owner.execute(PUBLIC_RIGHTS).fetchall() == []
        owner.execute("GRANT SELECT ON bide.steps TO PUBLIC")
        assert len(owner.execute(PUBLIC_RIGHTS).fetchall()) == 1, "control: a grant is found"


@pytest.mark.core
@pytest.mark.parametrize("access", [None, *SETS])
def test_a_set_opens_its_functions_and_no_other(db, make_role, access):
    role, other = make_role(access), make_role(None)
    with db.connect() as owner:
        fill(owner)
    for function in FUNCTIONS:
        values = function.values()
        if function.name == "grant_access":
            values["role"] = other
        allowed = access is not None and SETS.index(access) >= SETS.index(function.access)
        with as_role(db, role) as conn:
            found = sqlstate_of(function.call, conn, values)
            assert found == (None if allowed else "42501"), f"{function.name} by {access}"


@pytest.mark.core
def test_a_writer_inserts_and_reads(db, make_role):
    with as_role(db, make_role("writer")) as writer, as_role(db, make_role("reader")) as reader:
        assert insert(writer, "run", "step", b"data") == (0, True, None)
        assert insert(writer, "run", "step", b"other") == (0, False, b"data")
        assert load_all(reader, "run") == load_all(writer, "run") != []


def in_a_block(conn, statement) -> None:
    with conn.transaction():  # LOCK TABLE asks for one
        conn.execute(statement)


@pytest.mark.core
@pytest.mark.parametrize("access", [None, *SETS])
def test_no_set_opens_a_table(db, make_role, access):
    role = make_role(access)
    with db.connect() as owner:
        fill(owner)
        relations = owner.execute(RELATIONS).fetchall()
        columns = owner.execute(
            "SELECT relname, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid"
            " WHERE attnum > 0 AND relnamespace = 'bide'::regnamespace AND relkind = 'r'"
        ).fetchall()
    assert {"steps", "leases", "stores", "schema_version"} <= {name for _, name, _ in relations}
    with as_role(db, role) as conn:
        for schema, name, kind in relations:
            table = sql.Identifier(schema, name)
            for form in IN_A_SEQUENCE if kind == "S" else IN_A_TABLE:
                argument = sql.Literal(table.as_string(conn)) if "val(" in form else table
                statement = sql.SQL(form).format(*[argument] * form.count("{}"))
                assert sqlstate_of(in_a_block, conn, statement) == "42501", f"{access}: {statement.as_string(conn)}"
        for name, column in columns:
            update = sql.SQL("UPDATE {} SET {} = NULL").format(sql.Identifier("bide", name), sql.Identifier(column))
            assert sqlstate_of(conn.execute, update) == "42501", f"{access}: {update.as_string(conn)}"
        for statement in (
            "CREATE TABLE bide.mine (a int)",
            "CREATE FUNCTION bide.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "ALTER FUNCTION bide.version() SET work_mem = '1MB'",
            "ALTER SCHEMA bide RENAME TO mine",
            "DROP EXTENSION bide",
            "COPY bide.steps TO STDOUT",
        ):
            assert sqlstate_of(conn.execute, statement) == "42501", f"{access}: {statement}"


@pytest.mark.core
@pytest.mark.parametrize("function", WRITING, ids=ids(WRITING))
def test_who_has_no_right_makes_nobody_wait(db, make_role, function):
    """With the run locked he fails at once, not by a timeout, and leaves no lock behind."""
    with db.connect() as holder, db.connect() as watcher, as_role(db, make_role(None), lock_timeout="1ms") as nobody:
        fill(holder)
        holder.execute("BEGIN")
        allow_block(holder)
        insert(holder, "a run", "held")
        insert(holder, "a finished run", "held")
        assert sqlstate_of(lambda: function.call(nobody)) == "42501"
        nobody.execute("BEGIN")
        allow_block(nobody)
        assert sqlstate_of(lambda: function.call(nobody)) == "42501"
        assert run_locks(watcher, pid_of(nobody)) == []
        nobody.execute("ROLLBACK")
        holder.execute("ROLLBACK")


@pytest.mark.core
def test_control_who_has_the_right_does_queue(db, make_role):
    with db.connect() as holder, db.connect() as watcher, as_role(db, make_role("writer")) as writer:
        holder.execute("BEGIN")
        allow_block(holder)
        insert(holder, "run", "held")
        waiting = Background(lambda: insert(writer, "run", "next"))
        wait_for_run_lock(watcher, pid_of(writer), by=pid_of(holder))
        holder.execute("ROLLBACK")
        assert waiting.result().seq == 0


@pytest.mark.core
@pytest.mark.parametrize(
    "revoke",
    [
        "REVOKE USAGE ON SCHEMA bide FROM {}",
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA bide FROM {}",
    ],
)
def test_a_revoked_right_ends_in_a_session_that_used_it(db, make_role, revoke):
    """Also for a statement prepared before: the schema's USAGE is checked by each call, not by the parser alone."""
    role = make_role("writer")
    with db.connect() as owner, as_role(db, role) as writer:
        record = "SELECT seq FROM bide.insert(%s, %s, %s)"
        for n in range(3):
            writer.execute(record, ("run", f"step {n}", b""), prepare=True)
        read = "SELECT seq FROM bide.load(%s)"
        writer.execute(read, ("run",), prepare=True)
        owner.execute(revoke.format(role))
        assert sqlstate_of(lambda: writer.execute(record, ("run", "refused", b""), prepare=True)) == "42501"
        assert sqlstate_of(lambda: writer.execute(record, ("run", "step 1", b""), prepare=True)) == "42501"
        assert sqlstate_of(lambda: writer.execute(read, ("run",), prepare=True)) == "42501"
        assert len(load_all(owner, "run")) == 3


@pytest.mark.core
def test_an_admin_grants_without_owning_anything(db, make_role):
    admin, app = make_role("admin"), make_role(None)
    with as_role(db, admin) as conn, as_role(db, app) as writer:
        assert sqlstate_of(insert, writer, "run", "step") == "42501"
        BY_NAME["grant_access"].call(conn, {"role": app, "access": "writer"})
        assert insert(writer, "run", "step").inserted
        assert sqlstate_of(lambda: BY_NAME["grant_access"].call(writer, {"role": app, "access": "admin"})) == "42501"


def test_roles_with_odd_names_get_their_set(db):
    with db.connect() as owner:
        for name in ('we"ird', "a.b", "Mixed Case", "роль 🚀", "x'; DROP ROLE y; --"):
            role = sql.Identifier(name)
            owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
            try:
                owner.execute("SELECT FROM bide.grant_access(%s, 'writer')", (name,))
                with as_role(db, name) as writer:
                    assert insert(writer, name, "step").inserted
            finally:
                owner.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))


def test_the_code_acts_as_owner_only_while_it_works(db, make_role):
    """After a call, also one that failed, the session is the caller again."""
    role = make_role("writer")
    with as_role(db, role) as writer:
        insert(writer, "run", "step")
        assert sqlstate_of(insert, writer, "run", "x" * 2000) == "22023"
        writer.execute("BEGIN")
        allow_block(writer)
        writer.execute("SAVEPOINT s")
        assert sqlstate_of(insert, writer, "", "step") == "22023"
        writer.execute("ROLLBACK TO s")
        insert(writer, "run", "next")
        assert writer.execute("SELECT current_user, session_user").fetchone() == (role, role)
        assert sqlstate_of(writer.execute, "SELECT FROM bide.steps") == "42501"
        writer.execute("ROLLBACK")
