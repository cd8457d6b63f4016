# A steps table that is not plain gives right results or a clear refusal; never wrong rows, never a crash.
# C-16, C-22, C-89, C-105, C-168, C-172, C-184.
# Method: each alteration in a database of its own, on an empty table and on one in use (so that a session
# has cached what the table was). Then every writing and reading call, alone and with 8 writers at once,
# and amcheck: every heap row is in every index.
# Control: what the alteration demands is shown to be demanded (its CHECK, key, trigger … sees our rows),
# so nothing above passed because it was not looked at.

from __future__ import annotations

import psycopg
import pytest

from calls import allow_block, assert_gap_free, call, get, insert, insert_many, load_all, runs, sqlstate_of
from racing import Background, failures, race, sessions
from waits import pid_of, wait_blocked

STEPS = "bide.steps"

RIGHT = {
    "expression_index": "CREATE INDEX ON bide.steps (lower(name), length(data))",
    "expression_index_by_function": """
        CREATE FUNCTION public.label(text, bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN RETURN $1 || pg_catalog.length($2); END $$;
        CREATE INDEX ON bide.steps (public.label(name, data))""",
    "partial_index": "CREATE INDEX ON bide.steps (name) WHERE seq % 2 = 0",
    "partial_unique_index": "CREATE UNIQUE INDEX ON bide.steps (run_id) WHERE name = 'once'",
    "hash_index": "CREATE INDEX ON bide.steps USING hash (run_id)",
    "brin_index": "CREATE INDEX ON bide.steps USING brin (recorded_at)",
    "gin_index": "CREATE INDEX ON bide.steps USING gin (to_tsvector('simple', name))",
    "covering_index": "CREATE UNIQUE INDEX ON bide.steps (run_id, seq) INCLUDE (name, recorded_at)",
    "exclusion_constraint": "ALTER TABLE bide.steps ADD EXCLUDE USING btree (run_id WITH =, seq WITH =)",
    "deferred_extra_key": "ALTER TABLE bide.steps ADD UNIQUE (run_id, seq, name) DEFERRABLE INITIALLY DEFERRED",
    "check": "ALTER TABLE bide.steps ADD CHECK (name <> 'forbidden')",
    "check_not_valid": "ALTER TABLE bide.steps ADD CHECK (name <> 'forbidden') NOT VALID",
    "column_with_default": "ALTER TABLE bide.steps ADD note text DEFAULT 'as usual'",
    "column_with_volatile_default": "ALTER TABLE bide.steps ADD note text DEFAULT gen_random_uuid()::text",
    "not_null_column_with_default": "ALTER TABLE bide.steps ADD note text NOT NULL DEFAULT 'as usual'",
    "serial_column": "ALTER TABLE bide.steps ADD number bigserial",
    "identity_column": "ALTER TABLE bide.steps ADD number bigint GENERATED ALWAYS AS IDENTITY",
    "generated_column": "ALTER TABLE bide.steps ADD size int GENERATED ALWAYS AS (length(data)) STORED",
    "null_column": "ALTER TABLE bide.steps ADD note text",
    "dropped_column": "ALTER TABLE bide.steps ADD gone int NOT NULL DEFAULT 1; ALTER TABLE bide.steps DROP gone",
    "many_columns": "DO $$ BEGIN FOR n IN 1..100 LOOP EXECUTE 'ALTER TABLE bide.steps ADD c' || n || ' int';"
    " END LOOP; END $$",
    "after_trigger": """
        CREATE TABLE public.seen (run_id text, seq bigint, name text);
        CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO public.seen VALUES (NEW.run_id, NEW.seq, NEW.name); RETURN NULL; END $$;
        CREATE TRIGGER see AFTER INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.see()""",
    "statement_trigger_with_transition_table": """
        CREATE TABLE public.seen (run_id text, seq bigint, name text);
        CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO public.seen SELECT run_id, seq, name FROM added; RETURN NULL; END $$;
        CREATE TRIGGER see AFTER INSERT ON bide.steps REFERENCING NEW TABLE AS added
            FOR EACH STATEMENT EXECUTE FUNCTION public.see()""",
    "before_trigger_that_returns_new": """
        CREATE FUNCTION public.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
        CREATE TRIGGER pass BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.pass()""",
    "trigger_that_inserts_into_another_run": """
        CREATE FUNCTION public.mirror() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM FROM bide.insert('~mirror/' || NEW.run_id, NEW.name, NEW.data); RETURN NULL; END $$;
        CREATE TRIGGER mirror AFTER INSERT ON bide.steps FOR EACH ROW
            WHEN (NEW.run_id NOT LIKE '~mirror/%') EXECUTE FUNCTION public.mirror()""",
    "disabled_trigger": """
        CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER nothing BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.nothing();
        ALTER TABLE bide.steps DISABLE TRIGGER nothing""",
    "rule_that_adds": """
        CREATE TABLE public.seen (run_id text, seq bigint, name text);
        CREATE RULE also AS ON INSERT TO bide.steps
            DO ALSO INSERT INTO public.seen VALUES (NEW.run_id, NEW.seq, NEW.name)""",
    "foreign_key_to_steps": """
        CREATE TABLE public.effects (run_id text, seq bigint, FOREIGN KEY (run_id, seq) REFERENCES bide.steps (run_id, seq))""",
    "row_security": "ALTER TABLE bide.steps ENABLE ROW LEVEL SECURITY",
    "external_storage": "ALTER TABLE bide.steps ALTER data SET STORAGE EXTERNAL",
    "heap_by_another_name": """
        CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler;
        ALTER EXTENSION bide DROP TABLE bide.steps;
        SET default_table_access_method = heap2;
        CREATE TABLE public.other (LIKE bide.steps INCLUDING ALL);
        INSERT INTO public.other SELECT * FROM bide.steps;
        UPDATE bide.stores SET steps = 'public.other'::regclass""",
    "partitions": """
        CREATE TABLE public.other (LIKE bide.steps INCLUDING DEFAULTS,
            PRIMARY KEY (run_id, name), UNIQUE (run_id, seq)) PARTITION BY HASH (run_id);
        CREATE TABLE public.other_0 PARTITION OF public.other FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE public.other_1 PARTITION OF public.other FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        INSERT INTO public.other SELECT * FROM bide.steps;
        UPDATE bide.stores SET steps = 'public.other'::regclass""",
    "columns_in_another_order": """
        CREATE TABLE public.other (recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(), extra int, data bytea NOT NULL,
            name text COLLATE "C" NOT NULL, seq bigint NOT NULL, run_id text COLLATE "C" NOT NULL,
            UNIQUE (seq, run_id), UNIQUE (name, run_id));
        INSERT INTO public.other (run_id, seq, name, data) SELECT run_id, seq, name, data FROM bide.steps;
        UPDATE bide.stores SET steps = 'public.other'::regclass""",
    "publication": "CREATE PUBLICATION everything FOR ALL TABLES",
}  # fmt: skip

# Right, or a refusal that says what is wrong with the table: either is an answer, anything else is not.
RIGHT_OR_REFUSED = {
    "inheritance_child": "CREATE TABLE public.child () INHERITS (bide.steps)",
    "seq_is_int": "ALTER TABLE bide.steps ALTER seq TYPE int",
    "seq_is_numeric": "ALTER TABLE bide.steps ALTER seq TYPE numeric",
    "data_is_text": "ALTER TABLE bide.steps ALTER data TYPE text USING encode(data, 'escape')",
    "data_is_int": "ALTER TABLE bide.steps ALTER data TYPE int USING 1",
    "data_is_a_domain": "CREATE DOMAIN public.payload AS bytea CHECK (length(VALUE) < 64);"
    " ALTER TABLE bide.steps ALTER data TYPE public.payload",
    "name_is_varchar": "ALTER TABLE bide.steps ALTER name TYPE varchar(100)",
    "name_is_name": "ALTER TABLE bide.steps ALTER name TYPE name",
    "run_id_is_char": "ALTER TABLE bide.steps ALTER run_id TYPE char(200)",
    "run_id_in_the_default_collation": 'ALTER TABLE bide.steps ALTER run_id TYPE text COLLATE "default"',
    "name_in_another_collation": "CREATE COLLATION public.other (provider = libc, locale = 'C.UTF-8');"
    " ALTER TABLE bide.steps ALTER name TYPE text COLLATE public.other",
    "recorded_at_without_zone": "ALTER TABLE bide.steps ALTER recorded_at TYPE timestamp",
    "recorded_at_is_text": "ALTER TABLE bide.steps ALTER recorded_at TYPE text",
    "recorded_at_gone": "ALTER TABLE bide.steps DROP recorded_at CASCADE",
    "column_renamed": "ALTER TABLE bide.steps RENAME name TO title",
    "descending_key": """
        CREATE UNIQUE INDEX ON bide.steps (run_id DESC, seq DESC NULLS LAST);
        ALTER TABLE bide.steps DROP CONSTRAINT steps_run_id_seq_key""",
}  # fmt: skip

# No right result is possible.
REFUSED = {
    "unlogged": ("ALTER TABLE bide.steps SET UNLOGGED", {"55000"}),
    "trigger_that_suppresses": (
        """CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER nothing BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.nothing()""",
        {"55000"},
    ),
    "trigger_that_moves_the_position": (
        """CREATE FUNCTION public.move() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.seq := NEW.seq + 7; RETURN NEW; END $$;
        CREATE TRIGGER move BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.move()""",
        {"55000"},
    ),
    "trigger_that_changes_the_bytes": (
        """CREATE FUNCTION public.change() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.data := 'other'; RETURN NEW; END $$;
        CREATE TRIGGER change BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.change()""",
        {"55000"},
    ),
    "trigger_that_changes_the_name": (
        """CREATE FUNCTION public.rename() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.name := NEW.name || '!'; RETURN NEW; END $$;
        CREATE TRIGGER rename BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.rename()""",
        {"55000"},
    ),
    "trigger_that_moves_it_to_another_run": (
        """CREATE FUNCTION public.elsewhere() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.run_id := 'elsewhere'; RETURN NEW; END $$;
        CREATE TRIGGER elsewhere BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.elsewhere()""",
        {"55000"},
    ),
    "rule_instead": ("CREATE RULE nowhere AS ON INSERT TO bide.steps DO INSTEAD NOTHING", {"55000", "0A000"}),
    "not_null_column": ("ALTER TABLE bide.steps ADD needed text NOT NULL DEFAULT 'x';"
                        " ALTER TABLE bide.steps ALTER needed DROP DEFAULT", {"23502", "55000"}),
    "trigger_with_an_error_of_its_own": (
        """CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'not here' USING ERRCODE = 'P0099'; END $$;
        CREATE TRIGGER no BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.no()""",
        {"P0099"},
    ),
}  # fmt: skip


def table_of(db) -> str:
    return db.psql("SELECT steps FROM bide.stores WHERE name = 'bide'")


def stored(db) -> str:
    return db.psql(f"SELECT count(*) FROM {table_of(db)}")


def name_bytes(who, n) -> bytes:
    return b"%d/%d" % (who, n)


def exercise(db, conn, run):
    """Every call, alone; then 8 writers."""
    assert insert(conn, run, "a", b"A") == (0, True, None)
    assert insert(conn, run, "a", b"other") == (0, False, b"A")
    assert call(conn, "SELECT seq, inserted FROM bide.insert_json(%s, 'b', '[1]')", run) == [(1, True)]
    many = insert_many(conn, run, ["c", "a", "d", "c"], [b"", b"x", b"\x00\xff", b"y"])
    assert many == [("c", 2, True), ("a", 0, False), ("d", 3, True), ("c", 2, False)]
    large = bytes(range(256)) * 400
    assert insert(conn, run, "large", large).seq == 4
    assert [(s.seq, s.name, bytes(s.data)) for s in load_all(conn, run)] == [
        (0, "a", b"A"), (1, "b", b"[1]"), (2, "c", b""), (3, "d", b"\x00\xff"), (4, "large", large),
    ]  # fmt: skip
    assert get(conn, run, "large").data == large and get(conn, run, "none") is None
    assert run in runs(conn, prefix=run)
    rows = call(conn, "SELECT seq FROM generate_series(1, 20) g, LATERAL bide.insert(%s, 'series ' || g, '')", run)
    assert [row.seq for row in rows] == list(range(5, 25))
    told = {}
    with sessions(db.connect, 8) as conns:

        def writer(writing, who):
            for n in range(10):
                row = insert(writing, run + "/shared", f"{who}/{n}", name_bytes(who, n))
                assert row.inserted
                told[who, n] = row.seq
                assert insert(writing, run + "/shared", "raced", b"%d" % who).seq <= 80

        assert failures(race([lambda c=c, w=w: writer(c, w) for w, c in enumerate(conns)])) == []
    steps = load_all(conn, run + "/shared")
    assert_gap_free(steps)
    stored_at = {step.name: (step.seq, step.data) for step in steps if step.name != "raced"}
    assert stored_at == {f"{who}/{n}": (seq, name_bytes(who, n)) for (who, n), seq in told.items()}
    assert len(steps) == 81
    assert call(conn, "SELECT bide.purge_run(%s, true)", run + "/shared") == [(81,)]
    assert load_all(conn, run + "/shared") == []
    assert insert(conn, run + "/shared", "anew").seq == 0


@pytest.mark.core
@pytest.mark.parametrize("alteration", RIGHT)
def test_right_results(db, run, alteration):
    with db.connect() as conn:
        assert insert(conn, run + "/before", "a", b"before").seq == 0  # now the session has cached the table
        db.psql(RIGHT[alteration])
        assert insert(conn, run + "/before", "b").seq == 1
        assert get(conn, run + "/before", "a").data == b"before"
        exercise(db, conn, run)
    with db.connect() as fresh:
        exercise(db, fresh, run + " fresh")
        demanded(db, fresh, alteration, run)
    db.amcheck(table_of(db))


def demanded(db, conn, alteration, run):
    """The control: the table's own demand was met, or meets us."""
    table = table_of(db)
    if alteration.startswith("check"):
        before = stored(db)
        assert sqlstate_of(insert, conn, run, "forbidden") == "23514"
        assert sqlstate_of(insert_many, conn, run, ["fine", "forbidden"], [b"", b""]) == "23514"
        assert stored(db) == before and insert(conn, run, "fine").inserted
    elif alteration == "partial_unique_index":
        assert insert(conn, run, "once").inserted
        assert not insert(conn, run, "once").inserted
    elif alteration == "expression_index_by_function":
        found = "SET enable_seqscan = off; SELECT count(*) FROM bide.steps WHERE public.label(name, data) = 'a1'"
        assert db.psql(found) == "2"
    elif alteration == "partial_index":
        with_index = "SET enable_seqscan = off; SELECT count(*) FROM bide.steps WHERE name LIKE 'series%' AND seq % 2 = 0"
        assert db.psql(with_index) == db.psql(with_index.replace("enable_seqscan", "enable_indexscan"))
    elif alteration == "generated_column":
        assert db.psql(f"SELECT count(*) FROM {table} WHERE size IS DISTINCT FROM length(data)") == "0"
    elif "default" in alteration:
        assert db.psql(f"SELECT count(*) FROM {table} WHERE note IS NULL") == "0"
    elif alteration in ("serial_column", "identity_column"):
        assert db.psql(f"SELECT count(*) - count(DISTINCT number) FROM {table}") == "0"
    elif alteration in ("after_trigger", "statement_trigger_with_transition_table", "rule_that_adds"):
        missing = f"SELECT count(*) FROM {table} s WHERE run_id LIKE '%fresh' AND NOT EXISTS (SELECT FROM public.seen"
        assert db.psql(missing + " WHERE (run_id, seq, name) = (s.run_id, s.seq, s.name))") == "0"
    elif alteration == "trigger_that_inserts_into_another_run":
        ours = [(s.seq, s.name) for s in load_all(conn, run)]
        assert [(s.seq, s.name) for s in load_all(conn, "~mirror/" + run)] == ours
    elif alteration == "foreign_key_to_steps":
        insert_effect = "INSERT INTO public.effects VALUES (%s, %s)"
        conn.execute(insert_effect, (run, 0))
        assert sqlstate_of(conn.execute, insert_effect, (run, 9999)) == "23503"
        assert sqlstate_of(call, conn, "SELECT bide.purge_run(%s, true)", run) == "23503"
    elif alteration == "heap_by_another_name":
        am = f"SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.oid = '{table}'::regclass"
        assert db.psql(am) == "heap2"
        assert db.psql("SELECT count(*) FROM bide.steps") == "1", "nothing more went into the old table"
    elif alteration == "partitions":
        halves = db.psql("SELECT count(*) FROM public.other_0; SELECT count(*) FROM public.other_1").split()
        assert all(int(half) > 0 for half in halves), halves
        assert db.psql("SELECT count(*) FROM bide.steps") == "1", "nothing more went into the old table"


@pytest.mark.parametrize("alteration", RIGHT_OR_REFUSED)
def test_right_results_or_a_clear_refusal(db, run, alteration):
    with db.connect() as warm:
        insert(warm, run + "/before", "a")
        db.psql(RIGHT_OR_REFUSED[alteration])
        with db.connect() as cold:
            for conn, where in ((warm, "/warm"), (cold, "/cold")):
                try:
                    exercise(db, conn, run + where)
                    print(f"{alteration}: right")
                except psycopg.Error as error:
                    print(f"{alteration}: {error.sqlstate} {error}")
                    assert error.sqlstate == "55000" or (
                        # The column's own limits are errors of Postgres about the value.
                        alteration in ("data_is_a_domain", "data_is_text", "name_is_name")
                        and error.sqlstate in ("23514", "22021")
                    ), error
    db.amcheck(STEPS)


@pytest.mark.core
@pytest.mark.parametrize("alteration", REFUSED)
def test_refused_and_nothing_written(db, run, alteration):
    sql, states = REFUSED[alteration]
    with db.connect() as warm:
        insert(warm, run, "a", b"A")
        db.psql(sql)
        with db.connect() as cold:
            for conn in (warm, cold):
                assert sqlstate_of(insert, conn, run, "b", b"B") in states
                assert sqlstate_of(insert_many, conn, run, ["c", "d"], [b"", b""]) in states
                assert sqlstate_of(call, conn, "SELECT * FROM bide.insert_json(%s, 'e', '{}')", run) in states
                assert stored(db) == "1"
    db.amcheck(STEPS)


def test_unlogged_says_why_and_logged_again_works(db, run):
    with db.connect() as conn:
        insert(conn, run, "a")
        db.psql("ALTER TABLE bide.steps SET UNLOGGED")
        with pytest.raises(psycopg.Error) as caught:
            insert(conn, run, "b")
        assert "steps" in caught.value.diag.message_primary and caught.value.diag.message_hint
        db.psql("ALTER TABLE bide.steps SET LOGGED")
        assert insert(conn, run, "b").seq == 1


@pytest.mark.core
def test_a_foreign_key_of_steps_is_enforced(db, run):
    db.psql("CREATE TABLE public.known (run_id text PRIMARY KEY)")
    with db.connect() as conn:
        insert(conn, f"{run}/old", "a")
        db.psql(
            "INSERT INTO public.known SELECT run_id FROM bide.steps;"
            "ALTER TABLE bide.steps ADD FOREIGN KEY (run_id) REFERENCES public.known"
        )
        assert sqlstate_of(insert, conn, run, "a") == "23503"
        assert load_all(conn, run) == []
        db.psql(f"INSERT INTO public.known VALUES ('{run}')")
        for level in ("read committed", "repeatable read", "serializable"):
            conn.execute(f"SET default_transaction_isolation = '{level}'")
            assert insert(conn, run, level).inserted
        assert_gap_free(load_all(conn, run))
        assert sqlstate_of(conn.execute, "DELETE FROM public.known") == "23503", "control: the key holds"
    db.amcheck(STEPS)


@pytest.mark.core
def test_an_index_that_fails_for_some_rows(db, run):
    """An error in the middle of the index entries leaves nothing behind, and the session goes on."""
    db.psql("CREATE INDEX ON bide.steps ((1 / (length(data) - 3)))")
    with db.connect() as conn:
        for number in range(20):
            assert sqlstate_of(insert, conn, run, "bad", b"123") == "22012"
            assert sqlstate_of(insert_many, conn, run, ["fine", "bad"], [b"", b"123"]) == "22012"
            assert insert(conn, run, f"good {number}").seq == number
        assert_gap_free(load_all(conn, run))
    db.amcheck(STEPS)


def test_an_extra_unique_index_raises_its_own_error(db, run):
    """Not one of the store's keys: 23505 names it, so a client need not retry for ever."""
    db.psql("CREATE UNIQUE INDEX one_payload ON bide.steps (data)")
    with db.connect() as conn:
        assert insert(conn, run, "a", b"same").seq == 0
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            insert(conn, run, "b", b"same")
        assert caught.value.diag.constraint_name == "one_payload"
        assert insert(conn, run, "b", b"other").seq == 1


@pytest.mark.core
def test_forced_row_security_on_an_owner_who_is_no_superuser(db, run):
    """Which step a name means must not depend on who asks: right, or refused; never a second one."""
    role = f"keeper_{db.name}"
    db.psql(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA bide TO {role};"
        f"ALTER TABLE bide.steps OWNER TO {role}; ALTER TABLE bide.leases OWNER TO {role};"
        "ALTER TABLE bide.steps ENABLE ROW LEVEL SECURITY"
    )
    try:
        with db.connect() as conn:
            exercise(db, conn, run)
            db.psql("ALTER TABLE bide.steps FORCE ROW LEVEL SECURITY")
            before = stored(db)
            state = sqlstate_of(insert, conn, run, "hidden")
            print(f"no policy: {state}")
            assert state in ("55000", "42501", "23505"), "nothing may be seen, so nothing can be right"
            assert stored(db) == before
            db.psql("CREATE POLICY everything ON bide.steps USING (name <> 'a') WITH CHECK (name <> 'forbidden')")
            for name in ("forbidden", "a", "fine"):
                print(name, sqlstate_of(insert, conn, run, name))
            assert_gap_free(call(conn, "SELECT seq, name FROM bide.steps WHERE run_id = %s ORDER BY seq", run))
            assert db.psql("SELECT count(*) FROM bide.steps WHERE name = 'forbidden'") == "0"
        db.amcheck(STEPS)
    finally:
        db.psql(f"ALTER TABLE bide.steps OWNER TO postgres; ALTER TABLE bide.leases OWNER TO postgres;"
                f"DROP OWNED BY {role}; DROP ROLE {role}")  # fmt: skip


@pytest.mark.core
def test_a_session_outlives_the_extension(db, run):
    """What a session has cached of dropped tables does not reach the new ones."""
    with db.connect() as conn:
        for _ in range(3):
            assert insert(conn, run, "a").seq == 0
            assert insert(conn, run, "b").seq == 1
            db.psql("DROP EXTENSION bide CASCADE; DROP SCHEMA IF EXISTS bide CASCADE")
            assert sqlstate_of(insert, conn, run, "c") in ("42883", "3F000")
            db.psql("CREATE EXTENSION bide")
        exercise(db, conn, run)
    db.amcheck(STEPS)


def test_spi_and_direct_paths_take_the_same_lock(db, run):
    """A session that still has the table as plain and one that has it as unusual queue with each other."""
    with db.connect() as plain, db.connect() as unusual, db.connect() as watcher:
        plain.execute("BEGIN")
        allow_block(plain)
        assert insert(plain, run, "a").seq == 0
        # From here on this session goes through SPI, the other still knows the table as plain.
        plain.execute("ALTER TABLE bide.steps ADD CHECK (seq >= 0)")
        assert insert(plain, run, "b").seq == 1
        waiting = Background(lambda: insert(unusual, run, "c"))
        wait_blocked(watcher, pid_of(unusual), by=pid_of(plain))
        plain.execute("COMMIT")
        assert waiting.result().seq == 2
        assert_gap_free(load_all(watcher, run))
