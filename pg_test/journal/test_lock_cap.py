# One transaction cannot fill the lock table that all sessions share: at bide.max_run_locks it gets 54000.
# Method: one statement over 100,000 runs, while other sessions go on inserting; the cap is exact, counts
# runs (not calls), and what was rolled back does not count. insert_many of 100,000 steps takes one lock.
# Control: with the cap out of the way the same statement does fill the lock table, and another session
# fails (on a server of its own).

import psycopg
import pytest

from calls import allow_block, assert_gap_free, call, insert, load_all, runs, sqlstate_of
from cluster import Cluster
from racing import Background, Until
from waits import pid_of, run_locks, wait_until

MANY_RUNS = "SELECT count(*) FROM generate_series(1, %s) g, LATERAL bide.insert(%s || g, 'step', '')"
CAP = 1000


@pytest.mark.core
def test_100_000_runs_in_one_transaction_are_refused_and_harm_nobody(path_db, run):
    prefix = f"{run} {path_db.path}/"
    others = f"{run} {path_db.path} others/"
    with path_db.connect() as greedy, path_db.connect() as one, path_db.connect() as two:
        count = iter(range(10**9))
        with Until(
            lambda: insert(one, f"{others}one/{next(count) % 200}", f"n{next(count)}"),
            lambda: insert(two, f"{others}two", f"n{next(count)}"),
        ) as loops:
            turns = list(loops.turns)
            refused = 0
            while refused < 5 or min(now - then for now, then in zip(loops.turns, turns)) < 20:
                refused += 1
                with pytest.raises(psycopg.Error) as caught:
                    call(greedy, MANY_RUNS, 100_000, prefix)
                assert caught.value.sqlstate == "54000"
                assert str(CAP) in f"{caught.value.diag.message_detail} {caught.value.diag.message_primary}"
                assert "commit" in caught.value.diag.message_hint.lower()
        assert runs(one, prefix=prefix) == [] and run_locks(one) == []
        assert_gap_free(load_all(one, others + "two"))


@pytest.mark.core
def test_the_cap_is_exact_and_counts_runs(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        assert call(conn, MANY_RUNS, CAP, f"{run}/exact/")[0].count == CAP
        assert sqlstate_of(call, conn, MANY_RUNS, CAP + 1, f"{run}/over/") == "54000"
        assert runs(conn, prefix=f"{run}/over/") == []
        # Ten calls in each of the runs at the cap; names that are taken take no lock.
        rows = call(
            conn,
            "SELECT count(*) FROM generate_series(1, 10000) g,"
            " LATERAL bide.insert(%s || g %% 1000, 'step ' || g / 1000, '')",
            f"{run}/often/",
        )
        assert rows[0].count == 10_000
        assert call(conn, MANY_RUNS, CAP, f"{run}/exact/")[0].count == CAP
        # Nothing is left over from the transaction before.
        assert call(conn, MANY_RUNS, CAP, f"{run}/again/")[0].count == CAP
        assert run_locks(watcher) == []


def test_the_cap_is_a_setting(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn:
        conn.execute("SET bide.max_run_locks = 3")
        assert call(conn, MANY_RUNS, 3, f"{run}/a/")[0].count == 3
        assert sqlstate_of(call, conn, MANY_RUNS, 4, f"{run}/b/") == "54000"
        conn.execute("SET bide.max_run_locks = 2000")
        assert call(conn, MANY_RUNS, 2000, f"{run}/c/")[0].count == 2000


def test_what_was_rolled_back_does_not_count(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        conn.execute("BEGIN")
        allow_block(conn)
        for number in range(5):
            conn.execute("SAVEPOINT s")
            call(conn, MANY_RUNS, 900, f"{run}/{number}/")
            assert len(run_locks(watcher, pid_of(conn))) == 900
            conn.execute("ROLLBACK TO SAVEPOINT s")
            assert run_locks(watcher, pid_of(conn)) == []
        # Kept by RELEASE, they do count.
        conn.execute("SAVEPOINT s")
        call(conn, MANY_RUNS, 900, f"{run}/kept/")
        conn.execute("RELEASE SAVEPOINT s")
        assert sqlstate_of(call, conn, MANY_RUNS, 101, f"{run}/more/") == "54000"
        conn.execute("ROLLBACK")
        # Refused inside a savepoint, the rest of the block goes on.
        conn.execute("BEGIN")
        allow_block(conn)
        call(conn, MANY_RUNS, 999, f"{run}/first/")
        conn.execute("SAVEPOINT s")
        assert sqlstate_of(call, conn, MANY_RUNS, 2, f"{run}/second/") == "54000"
        conn.execute("ROLLBACK TO SAVEPOINT s")
        assert insert(conn, f"{run}/third", "a").inserted
        conn.execute("COMMIT")
        assert len(runs(conn, prefix=f"{run}/", max_rows=10_000)) == 1000


@pytest.mark.core
def test_insert_many_of_100_000_steps(path_db, run):
    run = f"{run} {path_db.path}"
    sql = (
        "SELECT count(*), min(seq), max(seq), count(*) FILTER (WHERE inserted) AS won FROM bide.insert_many(%s,"
        " (SELECT array_agg('n' || g ORDER BY g) FROM generate_series(1, 100000) g),"
        " (SELECT array_agg(convert_to(g::text, 'UTF8') ORDER BY g) FROM generate_series(1, 100000) g))"
    )
    with path_db.connect() as conn, path_db.connect() as watcher:
        insert(conn, run, "n7", b"before")
        working = Background(lambda: call(conn, sql, run)[0])
        wait_until(lambda: working.done or run_locks(watcher, pid_of(conn)), what="the call to have begun")
        if not working.done:
            assert len(run_locks(watcher, pid_of(conn))) <= 1
        assert working.result(120) == (100_000, 0, 99_999, 99_999)
        found = conn.execute(
            "SELECT count(*), max(seq), count(DISTINCT name) FROM bide.steps WHERE run_id = %s", (run,)
        ).fetchone()
        assert found == (100_000, 99_999, 100_000)
        # Again: everything is there already.
        assert call(conn, sql, run)[0] == (100_000, 0, 99_999, 0)
        # All or nothing: a step that is refused at the end undoes the rest.
        bad = sql.replace("'n' || g ORDER BY g", "CASE g WHEN 100000 THEN '' ELSE 'm' || g END ORDER BY g")
        assert sqlstate_of(call, conn, bad, run) == "22023"
        assert insert(conn, run, "next").seq == 100_000


def test_control_without_the_cap_the_lock_table_fills(run):
    with Cluster("locks", conf={"max_connections": "10", "max_locks_per_transaction": "10"}) as own:
        own.psql("CREATE EXTENSION bide")
        with own.connect() as greedy, own.connect() as other:
            greedy.execute("SET bide.max_run_locks = 1000000")
            greedy.execute("BEGIN")
            allow_block(greedy)
            assert sqlstate_of(call, greedy, MANY_RUNS, 100_000, run) == "53200", "out of shared memory"
            greedy.execute("ROLLBACK")
            # The cap's own error comes long before, and the server has taken no harm.
            greedy.execute("SET bide.max_run_locks = 100")
            assert sqlstate_of(call, greedy, MANY_RUNS, 100_000, run) == "54000"
            assert insert(other, run, "a").seq == 0
