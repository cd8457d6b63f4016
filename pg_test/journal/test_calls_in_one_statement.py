# Several calls in one statement or transaction see each other.  C-22, C-24, C-25, C-116.
# Method: LATERAL over generate_series, two calls side by side, CTEs, INSERT ... SELECT, DO loops, functions,
# cursors, prepared statements, savepoints and EXCEPTION blocks that roll back; each at every level, both paths.
# Where a block is needed transaction_block = allow; without it the call is refused with 25001 and a hint.
# Control: the refusals: the same call outside the block succeeds.

import psycopg
import pytest

from calls import LEVELS, allow_block, assert_gap_free, call, get, insert, load_all, sqlstate_of
from racing import sessions
from waits import pid_of, run_locks


@pytest.fixture(params=LEVELS)
def session(request, path_db):
    with sessions(path_db.connect, 1, request.param) as (conn,):
        conn.level = request.param
        yield conn


@pytest.fixture
def here(run, path_db, session):
    return f"{run} {path_db.path} {session.level}"


def names(conn, run):
    steps = load_all(conn, run)
    assert_gap_free(steps)
    return [step.name for step in steps]


@pytest.mark.core
def test_lateral_over_a_series(session, here):
    rows = call(
        session,
        "SELECT g, seq, inserted FROM generate_series(0, 999) g, LATERAL bide.insert(%s, 'n' || g, 'x')",
        here,
    )
    assert rows == [(g, g, True) for g in range(1000)]
    assert names(session, here) == [f"n{g}" for g in range(1000)]


@pytest.mark.core
def test_a_name_twice_in_one_statement(session, here):
    rows = call(
        session,
        "SELECT g, seq, inserted, stored FROM generate_series(1, 6) g,"
        " LATERAL bide.insert(%s, 'n' || g %% 2, convert_to(g::text, 'UTF8'))",
        here,
    )
    assert rows == [
        (1, 0, True, None), (2, 1, True, None), (3, 0, False, b"1"),
        (4, 1, False, b"2"), (5, 0, False, b"1"), (6, 1, False, b"2"),
    ]  # fmt: skip


def test_many_runs_in_one_statement(session, here):
    rows = call(
        session,
        "SELECT seq FROM generate_series(0, 299) g, LATERAL bide.insert(%s || g %% 100, 'n' || g, '')",
        here + "/",
    )
    assert [row.seq for row in rows] == [g // 100 for g in range(300)]


def test_side_by_side_in_one_select_list(session, here):
    row = call(
        session,
        "SELECT (SELECT seq FROM bide.insert(%s, 'a', '')) AS a, (SELECT seq FROM bide.insert(%s, 'b', '')) AS b,"
        " (SELECT inserted FROM bide.insert(%s, 'a', '')) AS again",
        here, here, here,
    )[0]  # fmt: skip
    assert row == (0, 1, False)


def test_union_and_common_table_expressions(session, here):
    rows = call(
        session,
        "WITH one AS MATERIALIZED (SELECT seq FROM bide.insert(%s, 'a', '')),"
        " two AS MATERIALIZED (SELECT seq FROM bide.insert(%s, 'b', ''))"
        " SELECT seq FROM one UNION ALL SELECT seq FROM two UNION ALL SELECT seq FROM bide.insert(%s, 'c', '')",
        here, here, here,
    )  # fmt: skip
    assert sorted(row.seq for row in rows) == [0, 1, 2]


def test_insert_select_from_insert(session, here, path_db):
    session.execute("CREATE TABLE IF NOT EXISTS public.copies (run_id text, seq bigint, name text)")
    session.execute(
        "INSERT INTO public.copies SELECT %s, seq, 'n' || g FROM generate_series(0, 9) g,"
        " LATERAL bide.insert(%s, 'n' || g, '')",
        (here, here),
    )
    copied = session.execute("SELECT seq, name FROM public.copies WHERE run_id = %s ORDER BY seq", (here,))
    assert copied.fetchall() == [(n, f"n{n}") for n in range(10)]
    assert len(names(session, here)) == 10


def test_insert_many_and_insert_in_one_statement(session, here):
    rows = call(
        session,
        "SELECT g, m.name, m.seq, m.inserted FROM generate_series(1, 3) g,"
        " LATERAL bide.insert_many(%s, ARRAY['a', 'x' || g, 'x' || g], ARRAY['', '', '']::bytea[]) m",
        here,
    )
    assert [(r.name, r.seq, r.inserted) for r in rows] == [
        ("a", 0, True), ("x1", 1, True), ("x1", 1, False),
        ("a", 0, False), ("x2", 2, True), ("x2", 2, False),
        ("a", 0, False), ("x3", 3, True), ("x3", 3, False),
    ]  # fmt: skip


@pytest.mark.core
def test_a_do_block_is_no_transaction_block(session, here):
    session.execute(
        f"""DO $$
        DECLARE got bigint;
        BEGIN
            FOR n IN 0..99 LOOP
                SELECT seq INTO STRICT got FROM bide.insert('{here}', 'n' || n, '');
                ASSERT got = n, 'position';
                SELECT seq INTO STRICT got FROM bide.insert('{here}', 'n0', '');
                ASSERT got = 0, 'taken';
            END LOOP;
        END $$"""
    )
    assert len(names(session, here)) == 100


def test_a_function_that_loops(session, here):
    session.execute(
        """CREATE OR REPLACE FUNCTION pg_temp.loop_over(run text) RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE total bigint := 0; got record;
        BEGIN
            FOR got IN SELECT i.seq FROM generate_series(0, 19) g, LATERAL bide.insert(run, 'n' || g, '') i LOOP
                total := total + got.seq;
                PERFORM FROM bide.insert(run, 'inner ' || got.seq, '');
            END LOOP;
            RETURN total;
        END $$"""
    )
    session.execute("SELECT pg_temp.loop_over(%s)", (here,))
    assert len(names(session, here)) == 40


def test_a_procedure_that_commits_as_it_goes(session, here, path_db):
    """Each COMMIT ends the locks: more runs than one transaction may hold, without a block."""
    session.execute(
        """CREATE OR REPLACE PROCEDURE public.one_by_one(prefix text, runs int) LANGUAGE plpgsql AS $$
        BEGIN
            FOR n IN 1..runs LOOP
                PERFORM FROM bide.insert(prefix || '/' || n % 1200, 'n' || n, '');
                PERFORM FROM bide.insert(prefix, 'n' || n, '');
                COMMIT;
            END LOOP;
        END $$"""
    )
    session.execute("CALL public.one_by_one(%s, 1500)", (here,))
    assert len(names(session, here)) == 1500
    with path_db.connect() as watcher:
        assert run_locks(watcher, pid_of(session)) == []


def test_a_prepared_statement_again_and_again(session, here):
    session.execute("PREPARE step(text, text) AS SELECT seq FROM bide.insert($1, $2, 'x')")
    for n in range(20):
        assert session.execute(f"EXECUTE step('{here}', 'n{n}')").fetchone() == (n,)
    session.execute("DEALLOCATE step")


@pytest.mark.core
def test_a_cursor_inserts_as_it_is_read(session, here, path_db):
    with path_db.connect() as watcher:
        session.execute("BEGIN")
        allow_block(session)
        session.execute(
            f"DECLARE c NO SCROLL CURSOR FOR SELECT g, seq FROM generate_series(0, 9) g,"
            f" LATERAL bide.insert('{here}', 'n' || g, '')"
        )
        assert session.execute("FETCH 3 FROM c").fetchall() == [(0, 0), (1, 1), (2, 2)]
        assert insert(session, here, "between").seq == 3
        assert session.execute("FETCH 2 FROM c").fetchall() == [(3, 4), (4, 5)]
        assert run_locks(watcher, pid_of(session)) == [(pid_of(session), True)]
        session.execute("CLOSE c")
        session.execute("COMMIT")
        assert names(watcher, here) == ["n0", "n1", "n2", "between", "n3", "n4"]


def test_a_held_cursor_is_run_once(session, here):
    session.execute(
        f"DECLARE held CURSOR WITH HOLD FOR SELECT seq FROM generate_series(0, 4) g,"
        f" LATERAL bide.insert('{here}', 'n' || g, '')"
    )
    assert session.execute("FETCH ALL FROM held").fetchall() == [(n,) for n in range(5)]
    session.execute("CLOSE held")
    assert len(names(session, here)) == 5


def test_a_client_cursor_of_psycopg(session, here):
    with session.transaction():
        allow_block(session)
        with session.cursor(name="server_side") as cursor:
            cursor.execute("SELECT seq FROM generate_series(0, 49) g, LATERAL bide.insert(%s, 'n' || g, '')", (here,))
            assert [row[0] for row in cursor] == list(range(50))
    assert len(names(session, here)) == 50


# -- blocks and subtransactions -----------------------------------------------------------------


REFUSED = [
    "SELECT * FROM bide.insert(%s, 'n', '')",
    "SELECT * FROM bide.insert_json(%s, 'n', '{}')",
    "SELECT * FROM bide.insert_many(%s, ARRAY['n'], ARRAY['']::bytea[])",
    "SELECT bide.next_seq(%s)",
    "SELECT bide.purge_run(%s, true)",
]


@pytest.mark.core
@pytest.mark.parametrize("sql", REFUSED)
def test_a_block_is_refused_with_a_hint(path_db, run, sql):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn:
        conn.execute("BEGIN")
        with pytest.raises(psycopg.Error) as caught:
            conn.execute(sql, (run,))
        assert caught.value.sqlstate == "25001"
        hint = caught.value.diag.message_hint
        assert "transaction_block" in hint and "autocommit" in hint, hint
        conn.execute("ROLLBACK")
        assert load_all(conn, run) == []
        conn.execute(sql, (run,))  # control: outside a block


def test_reads_are_allowed_in_a_block(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn:
        insert(conn, run, "a")
        conn.execute("BEGIN READ ONLY")
        assert get(conn, run, "a").seq == 0 and len(load_all(conn, run)) == 1
        conn.execute("SELECT * FROM bide.runs(prefix => %s)", (run,))
        conn.execute("COMMIT")


@pytest.mark.core
def test_a_savepoint_that_rolls_back_frees_its_positions(session, here, path_db):
    with path_db.connect() as watcher:
        session.execute("BEGIN")
        allow_block(session)
        assert insert(session, here, "kept").seq == 0
        session.execute("SAVEPOINT s")
        assert insert(session, here, "gone").seq == 1
        assert insert(session, here + "/other run", "gone").seq == 0
        session.execute("ROLLBACK TO SAVEPOINT s")
        assert len(run_locks(watcher, pid_of(session))) == 1, "the other run is free again"
        assert insert(session, here, "next", b"1").seq == 1
        assert insert(session, here, "gone", b"2") == (2, True, None)
        session.execute("COMMIT")
        assert names(watcher, here) == ["kept", "next", "gone"]
        assert load_all(watcher, here + "/other run") == []


@pytest.mark.core
def test_an_exception_block_that_rolls_back(session, here):
    body = f"""DO $$
        BEGIN
            PERFORM FROM bide.insert('{here}', 'outer', '');
            FOR n IN 1..5 LOOP
                BEGIN
                    PERFORM FROM bide.insert('{here}', 'inner ' || n, '');
                    IF n %% 2 = 0 THEN RAISE division_by_zero; END IF;
                EXCEPTION WHEN division_by_zero THEN NULL;
                END;
            END LOOP;
        END $$""".replace("%%", "%")
    assert sqlstate_of(session.execute, body) == "25001", "a subtransaction is a block"
    assert names(session, here) == []
    session.execute("SET bide.transaction_block = allow")
    session.execute(body)
    assert names(session, here) == ["outer", "inner 1", "inner 3", "inner 5"]


def test_an_error_of_bide_caught_in_a_block_changes_nothing(session, here):
    session.execute("SET bide.transaction_block = allow")
    session.execute(
        f"""DO $$
        BEGIN
            PERFORM FROM bide.insert('{here}', 'first', '');
            FOR n IN 1..100 LOOP
                BEGIN
                    PERFORM FROM bide.insert('{here}', '', '');
                    RAISE 'not refused';
                EXCEPTION WHEN invalid_parameter_value THEN NULL;
                END;
                BEGIN
                    PERFORM FROM bide.insert_many('{here}', ARRAY['ok ' || n, NULL], ARRAY['', '']::bytea[]);
                    RAISE 'not refused';
                EXCEPTION WHEN null_value_not_allowed THEN NULL;
                END;
            END LOOP;
            PERFORM FROM bide.insert('{here}', 'last', '');
        END $$"""
    )
    assert names(session, here) == ["first", "last"]


def test_a_block_that_rolls_back_leaves_nothing(session, here, path_db):
    with path_db.connect() as watcher:
        for _ in range(3):
            session.execute("BEGIN")
            allow_block(session)
            for n in range(10):
                assert insert(session, here, f"n{n}").seq == n
            session.execute("ROLLBACK")
            assert load_all(watcher, here) == [] and run_locks(watcher, pid_of(session)) == []
        assert insert(session, here, "n").seq == 0


def test_a_prepared_transaction_keeps_the_run_locked(path_db, run):
    """Two-phase commit: the lock goes with the prepared transaction, or PREPARE is refused."""
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as other:
        conn.execute("BEGIN")
        allow_block(conn)
        insert(conn, run, "prepared")
        state = sqlstate_of(conn.execute, f"PREPARE TRANSACTION '{run}'")
        if state is None:
            try:
                other.execute("SET lock_timeout = '200ms'")
                assert sqlstate_of(insert, other, run, "other") == "55P03"
            finally:
                conn.execute(f"COMMIT PREPARED '{run}'")
            assert insert(other, run, "other").seq == 1
        else:
            assert state == "0A000"
            assert insert(other, run, "other").seq == 0


def test_two_statements_in_one_message(path_db, run):
    """A simple query of several statements is one transaction: either refused, or both or neither."""
    run = f"{run} {path_db.path}"
    sql = f"SELECT seq FROM bide.insert('{run}', 'a', ''); SELECT seq FROM bide.insert('{run}', 'b', '')"
    with path_db.connect() as conn:
        state = sqlstate_of(conn.execute, sql)
        print(f"several statements in one message: {state or 'allowed'}")
        assert state in (None, "25001")
        assert names(conn, run) == ([] if state else ["a", "b"])
        assert insert(conn, run, "c").seq == (0 if state else 2)
