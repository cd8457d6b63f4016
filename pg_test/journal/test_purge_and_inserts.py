# A purge takes a whole run or nothing, whatever writers do meanwhile; the run then begins again at 0.
# Method: a purge held open while calls wait for the run's lock; then purges against writers of the same
# runs: every look at a run is gap-free, from 0.
# Control: the same delete by hand, without the lock, between a writer's reading and writing: a gap.

import psycopg
import pytest

from calls import LEVELS, allow_block, assert_gap_free, call, get, insert, insert_many, load_all, sqlstate_of
from racing import Background, Until, failures, race, sessions
from waits import pid_of, run_locks, wait_for_run_lock

PURGE = "SELECT bide.purge_run(%s, true) AS steps"


def purged(conn, run):
    return call(conn, PURGE, run)[0].steps


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_an_insert_waits_for_an_open_purge(path_db, run, level, commit):
    run = f"{run} {path_db.path} {level} {commit}"
    with sessions(path_db.connect, 2, level) as (purging, conn), path_db.connect() as watcher:
        insert_many(watcher, run, ["a", "b", "c"], [b"A", b"B", b"C"])
        purging.execute("BEGIN")
        allow_block(purging)
        assert purged(purging, run) == 3
        waiting = Background(lambda: insert(conn, run, "new"))
        wait_for_run_lock(watcher, pid_of(conn), by=pid_of(purging))
        assert len(load_all(watcher, run)) == 3
        purging.execute("COMMIT" if commit else "ROLLBACK")
        assert waiting.result().seq == (0 if commit else 3)
        assert_gap_free(load_all(watcher, run))


@pytest.mark.parametrize("level", LEVELS)
def test_insert_many_that_waited_for_a_purge_records_all_its_steps(path_db, run, level):
    """Names that were there before the purge are gone after it: all of the call's steps must be stored."""
    run = f"{run} {path_db.path} {level}"
    with sessions(path_db.connect, 2, level) as (purging, conn), path_db.connect() as watcher:
        insert_many(watcher, run, ["a", "b"], [b"old", b"old"])
        purging.execute("BEGIN")
        allow_block(purging)
        assert purged(purging, run) == 2
        waiting = Background(lambda: insert_many(conn, run, ["b", "new"], [b"new", b"new"]))
        wait_for_run_lock(watcher, pid_of(conn), by=pid_of(purging))
        purging.execute("COMMIT")
        try:
            told = waiting.result()
        except psycopg.errors.SerializationFailure:
            # Postgres may say so through SPI: nothing is written, the client calls again.
            assert path_db.path == "spi" and level == "serializable"
            told = insert_many(conn, run, ["b", "new"], [b"new", b"new"])
        stored = load_all(watcher, run)
        assert_gap_free(stored)
        for row in told:
            found = get(watcher, run, row.name)
            assert found is not None and found.seq == row.seq, f"told {row}, stored {stored}"


def test_a_purge_waits_for_an_open_insert(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as purging, path_db.connect() as watcher:
        insert(conn, run, "a")
        conn.execute("BEGIN")
        allow_block(conn)
        insert(conn, run, "b")
        waiting = Background(lambda: purged(purging, run))
        wait_for_run_lock(watcher, pid_of(purging), by=pid_of(conn))
        conn.execute("COMMIT")
        assert waiting.result() == 2
        assert load_all(watcher, run) == [] and run_locks(watcher) == []


def test_purges_against_writers(path_db, run, rng):
    run = f"{run} {path_db.path}"
    with sessions(path_db.connect, 12) as conns, path_db.connect() as looking, path_db.connect() as purging:

        def writer(conn, who):
            for n in range(60):
                row = insert(conn, f"{run}/{n % 2}", f"{who}/{n}")
                assert row.inserted

        def look():
            for number in (0, 1):
                rows = call(looking, "SELECT seq, name FROM bide.load(%s, max_rows => 10000)", f"{run}/{number}")
                assert_gap_free(rows)

        with Until(look, lambda: purged(purging, f"{run}/{rng.randrange(2)}")) as loops:
            assert failures(race([lambda c=c, w=w: writer(c, w) for w, c in enumerate(conns)])) == []
        look()
        print(f"{path_db.path}: {loops.turns[1]} purges, {loops.turns[0]} looks")
    path_db.amcheck("bide.steps")


def test_purge_finished_passes_over_a_busy_run(path_db, run):
    run = f"{run} {path_db.path}"
    purge = "SELECT bide.purge_finished(clock_timestamp() + '1 hour', 1000) AS runs"
    with path_db.connect() as busy, path_db.connect(settings={"lock_timeout": "5s"}) as purging:
        for number in range(3):
            insert_many(busy, f"{run}/{number}", ["a", "run:complete"], [b"", b""])
        insert(busy, f"{run}/unfinished", "a")
        call(purging, purge)
        for number in range(3):
            assert load_all(busy, f"{run}/{number}") == []
            insert_many(busy, f"{run}/{number}", ["a", "run:aborted"], [b"", b""])
        busy.execute("BEGIN")
        allow_block(busy)
        insert(busy, f"{run}/1", "late")
        call(purging, purge)
        assert [len(load_all(purging, f"{run}/{number}")) for number in range(3)] == [0, 2, 0]
        busy.execute("COMMIT")
        call(purging, purge)
        assert load_all(purging, f"{run}/1") == []
        assert len(load_all(purging, f"{run}/unfinished")) == 1


def test_purge_of_an_unfinished_run_is_refused(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        insert(conn, run, "a")
        assert sqlstate_of(call, conn, "SELECT bide.purge_run(%s)", run) == "55000"
        assert len(load_all(conn, run)) == 1 and run_locks(watcher) == []
        insert(conn, run, "run:cancelled")
        assert call(conn, "SELECT bide.purge_run(%s)", run) == [(2,)]


def test_control_a_delete_without_the_lock_leaves_a_gap(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as owner, path_db.connect() as conn:
        insert_many(conn, run, ["a", "b"], [b"", b""])
        owner.execute("BEGIN")
        owner.execute("DELETE FROM bide.steps WHERE run_id = %s", (run,))
        assert insert(conn, run, "c").seq == 2
        owner.execute("COMMIT")
        assert [step.seq for step in load_all(conn, run)] == [2]
