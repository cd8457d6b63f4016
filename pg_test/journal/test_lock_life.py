# The run lock: taken by every insert that wins, held until its commit is complete, seen by the next one.
# C-24, C-27, C-91, C-92, C-94, C-95, C-98, C-136, C-141.
# Method: a step is held open, by a deferred trigger at commit (which also makes the tables not plain) or by
# an open block; others are shown to wait on the lock, by pg_locks and pg_blocking_pids, not by time.
# Then the owner's plain INSERT, which takes no lock: there the unique keys decide (C-95).
# Control: a plain INSERT without the lock is not held up by it, so what waits above waits for the lock.

import pytest

from calls import LEVELS, allow_block, assert_gap_free, get, insert, load_all, sqlstate_of
from racing import Background, Retries, failures, race, sessions
from waits import pid_of, run_locks, wait_blocked, wait_for_run_lock, wait_until

PLAIN_INSERT = "INSERT INTO bide.steps (run_id, seq, name, data) VALUES (%s, %s, %s, %s)"

HOLD_AT_COMMIT = """
CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(4711);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON bide.steps DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.hold();
"""


@pytest.fixture
def held_at_commit(make_db):
    database = make_db()
    database.psql(HOLD_AT_COMMIT)
    return database


@pytest.mark.core
@pytest.mark.parametrize("level", LEVELS)
def test_lock_lives_until_commit_is_complete(held_at_commit, run, level):
    db = held_at_commit
    with sessions(db.connect, 2, level) as (first, second), sessions(db.connect, 2) as (gate, watcher):
        insert(watcher, run, "zero")
        gate.execute("SELECT pg_advisory_lock(4711)")
        a = Background(lambda: insert(first, run, "a", b"A"))
        wait_blocked(watcher, pid_of(first), by=pid_of(gate))
        b = Background(lambda: insert(second, run, "b", b"B"))
        wait_for_run_lock(watcher, pid_of(second), by=pid_of(first))
        # The statement of `first` is over, its commit is not.
        assert [step.name for step in load_all(watcher, run)] == ["zero"]
        assert run_locks(watcher) == [(pid_of(first), True), (pid_of(second), False)]
        gate.execute("SELECT pg_advisory_unlock(4711)")
        assert a.result().seq == 1 and b.result().seq == 2
        assert [step.name for step in load_all(watcher, run)] == ["zero", "a", "b"]
        assert run_locks(watcher) == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_failing_deferred_trigger_frees_the_position(make_db, run, level):
    db = make_db()
    db.psql(HOLD_AT_COMMIT.replace("RETURN NULL;", "IF NEW.name = 'bad' THEN RAISE 'refused'; END IF; RETURN NULL;"))
    with sessions(db.connect, 1, level) as (conn,), db.connect() as watcher:
        assert sqlstate_of(insert, conn, run, "bad") == "P0001"
        assert run_locks(watcher) == []
        assert insert(conn, run, "good").seq == 0


@pytest.mark.core
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_next_insert_waits_for_an_open_one(path_db, run, level, commit):
    run = f"{run} {path_db.path} {level} {commit}"
    with sessions(path_db.connect, 2, level) as (first, second), path_db.connect() as watcher:
        insert(watcher, run, "zero")
        first.execute("BEGIN")
        allow_block(first)
        assert insert(first, run, "a", b"A").seq == 1
        b = Background(lambda: insert(second, run, "b", b"B"))
        wait_for_run_lock(watcher, pid_of(second), by=pid_of(first))
        assert [step.name for step in load_all(watcher, run)] == ["zero"], "only what is committed is seen"
        first.execute("COMMIT" if commit else "ROLLBACK")
        assert b.result().seq == (2 if commit else 1), "the first attempt takes what is next by then"
        steps = load_all(watcher, run)
        assert [step.name for step in steps] == (["zero", "a", "b"] if commit else ["zero", "b"])
        assert_gap_free(steps)


@pytest.mark.core
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_a_resend_in_flight_waits_and_gets_the_answer(path_db, run, level, commit):
    run = f"{run} {path_db.path} {level} {commit}"
    with sessions(path_db.connect, 2, level) as (first, second), path_db.connect() as watcher:
        first.execute("BEGIN")
        allow_block(first)
        assert insert(first, run, "step", b"first")[:2] == (0, True)
        resend = Background(lambda: insert(second, run, "step", b"second"))
        wait_for_run_lock(watcher, pid_of(second), by=pid_of(first))
        first.execute("COMMIT" if commit else "ROLLBACK")
        assert resend.result() == ((0, False, b"first") if commit else (0, True, None))
        assert get(watcher, run, "step").data == (b"first" if commit else b"second")
        # After a lost reply the same call again: what is stored, and no position used.
        assert insert(second, run, "step", b"third")[:2] == (0, False)
        assert insert(second, run, "next").seq == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_open_block_sees_what_was_committed_while_it_waited(path_db, run, level):
    """Above read committed the block's own SELECT does not see it; insert does."""
    run = f"{run} {path_db.path} {level}"
    with sessions(path_db.connect, 2, level) as (one, block), path_db.connect() as watcher:
        block.execute("BEGIN")
        allow_block(block)
        assert load_all(block, run) == []
        assert insert(one, run, "step", b"committed later").seq == 0
        assert load_all(block, run) == [], "the block's snapshot is older"
        assert insert(block, run, "step", b"mine") == (0, False, b"committed later")
        if path_db.path == "spi" and level == "serializable":
            # The block has read the run and writes it after another wrote it: Postgres refuses that.
            assert sqlstate_of(insert, block, run, "other") in (None, "40001")
        else:
            assert insert(block, run, "other").seq == 1
        block.execute("COMMIT")
        assert_gap_free(load_all(watcher, run))


@pytest.mark.core
def test_different_runs_do_not_wait_for_each_other(path_db, run):
    with path_db.connect() as first, path_db.connect(settings={"statement_timeout": "20s"}) as second:
        first.execute("BEGIN")
        allow_block(first)
        insert(first, f"{run}/1 {path_db.path}", "a")
        for number in range(2, 100):
            assert insert(second, f"{run}/{number} {path_db.path}", "a").seq == 0
        first.execute("ROLLBACK")


def test_a_refused_insert_leaves_no_lock_behind(path_db, run):
    """Queued behind the winner, a loser gives the lock back at once, even inside a block."""
    run = f"{run} {path_db.path}"
    with path_db.connect() as first, path_db.connect() as loser, path_db.connect() as watcher:
        first.execute("BEGIN")
        allow_block(first)
        insert(first, run, "step", b"first")
        loser.execute("BEGIN")
        allow_block(loser)
        resend = Background(lambda: insert(loser, run, "step", b"second"))
        wait_for_run_lock(watcher, pid_of(loser), by=pid_of(first))
        first.execute("COMMIT")
        assert resend.result() == (0, False, b"first")
        assert run_locks(watcher, pid_of(loser)) == []
        assert insert(first, run, "next").seq == 1
        loser.execute("COMMIT")


def test_a_refused_insert_keeps_the_lock_its_block_already_had(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as block, path_db.connect() as other, path_db.connect() as watcher:
        insert(block, run, "old")
        block.execute("BEGIN")
        allow_block(block)
        assert insert(block, run, "mine").seq == 1
        for _ in range(3):
            assert not insert(block, run, "old").inserted
            assert not insert(block, run, "mine").inserted
        assert run_locks(watcher, pid_of(block)) == [(pid_of(block), True)]
        waiting = Background(lambda: insert(other, run, "other"))
        wait_for_run_lock(watcher, pid_of(other), by=pid_of(block))
        block.execute("COMMIT")
        assert waiting.result().seq == 2


def test_a_savepoint_that_rolls_back_lets_the_next_through(path_db, run):
    """The lock belongs to the subtransaction that took it: the block may stay open."""
    run = f"{run} {path_db.path}"
    with path_db.connect() as block, path_db.connect() as other, path_db.connect() as watcher:
        block.execute("BEGIN")
        allow_block(block)
        block.execute("SAVEPOINT s")
        assert insert(block, run, "gone").seq == 0
        waiting = Background(lambda: insert(other, run, "kept"))
        wait_for_run_lock(watcher, pid_of(other), by=pid_of(block))
        block.execute("ROLLBACK TO SAVEPOINT s")
        assert waiting.result().seq == 0
        assert insert(block, run, "gone").seq == 1
        block.execute("COMMIT")
        assert [step.name for step in load_all(watcher, run)] == ["kept", "gone"]


def test_a_released_savepoint_keeps_the_lock(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as block, path_db.connect() as other, path_db.connect() as watcher:
        block.execute("BEGIN")
        allow_block(block)
        block.execute("SAVEPOINT s")
        insert(block, run, "a")
        block.execute("RELEASE SAVEPOINT s")
        block.execute("SAVEPOINT t")
        assert not insert(block, run, "a").inserted
        block.execute("ROLLBACK TO SAVEPOINT t")
        waiting = Background(lambda: insert(other, run, "b"))
        wait_for_run_lock(watcher, pid_of(other), by=pid_of(block))
        block.execute("COMMIT")
        assert waiting.result().seq == 1


def test_two_blocks_in_opposite_order_end_in_one_deadlock_error(path_db, run):
    with path_db.connect() as one, path_db.connect() as two, path_db.connect() as watcher:
        left, right = f"{run}/left {path_db.path}", f"{run}/right {path_db.path}"
        for conn, first in ((one, left), (two, right)):
            conn.execute("BEGIN")
            allow_block(conn)
            insert(conn, first, "first")
        a = Background(lambda: sqlstate_of(insert, one, right, "second"))
        wait_for_run_lock(watcher, pid_of(one), by=pid_of(two))
        b = Background(lambda: sqlstate_of(insert, two, left, "second"))
        wait_until(lambda: a.done or b.done, what="the deadlock to be found")
        victim, survivor = (one, two) if a.done else (two, one)
        assert (a if a.done else b).result() == "40P01"
        victim.execute("ROLLBACK")
        assert (b if victim is one else a).result() is None
        survivor.execute("COMMIT")
        steps = load_all(watcher, left) + load_all(watcher, right)
        assert len(steps) == 2 and {step.seq for step in steps} == {0}


# -- the owner inserts without the lock ---------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["same", "other"])
def test_a_writer_without_the_lock_costs_an_attempt_never_a_gap(path_db, run, level, name):
    run = f"{run} {path_db.path} {level} {name}"
    with sessions(path_db.connect, 1, level) as (conn,), path_db.connect() as owner, path_db.connect() as watcher:
        owner.execute("BEGIN")
        owner.execute(PLAIN_INSERT, (run, 0, "same", b"owner"))
        assert run_locks(watcher, pid_of(owner)) == [], "control: it took no run lock"
        ours = Background(lambda: insert(conn, run, name, b"ours"))
        wait_blocked(watcher, pid_of(conn), by=pid_of(owner))
        assert run_locks(watcher, pid_of(conn)) == [(pid_of(conn), True)], "ours holds it, and waits for a key"
        owner.execute("COMMIT")
        error = ours.error()
        allowed = {"23505"} if level == "read committed" or path_db.path == "direct" else {"23505", "40001"}
        assert error.sqlstate in allowed, error
        assert len(load_all(watcher, run)) == 1 and run_locks(watcher) == []
        again = insert(conn, run, name, b"ours")
        assert again == ((0, False, b"owner") if name == "same" else (1, True, None))
        assert_gap_free(load_all(watcher, run))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["same", "other"])
def test_a_writer_without_the_lock_that_rolls_back_costs_nothing(path_db, run, level, name):
    run = f"{run} {path_db.path} {level} {name}"
    with sessions(path_db.connect, 1, level) as (conn,), path_db.connect() as owner, path_db.connect() as watcher:
        owner.execute("BEGIN")
        owner.execute(PLAIN_INSERT, (run, 0, "same", b"owner"))
        ours = Background(lambda: insert(conn, run, name, b"ours"))
        wait_blocked(watcher, pid_of(conn), by=pid_of(owner))
        owner.execute("ROLLBACK")
        assert ours.result() == (0, True, None)
        assert [step.data for step in load_all(watcher, run)] == [b"ours"]


def test_control_a_plain_insert_is_not_held_up_by_the_run_lock(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as block, path_db.connect(settings={"statement_timeout": "20s"}) as owner:
        block.execute("BEGIN")
        allow_block(block)
        insert(block, run, "a")
        owner.execute(PLAIN_INSERT, (run, 99, "b", b""))
        block.execute("ROLLBACK")


def test_mixed_writers_leave_no_gap(path_db, run, rng):
    """bide.insert against the owner's own max+1 without the lock: both retry, the keys keep order."""
    run = f"{run} {path_db.path}"
    ours, owners = Retries(), Retries()
    plain = (
        "INSERT INTO bide.steps (run_id, seq, name, data)"
        " SELECT %s, coalesce(max(seq) + 1, 0), %s, '' FROM bide.steps WHERE run_id = %s"
    )
    with sessions(path_db.connect, 8) as conns:

        def by_bide(conn, who):
            for n in range(20):
                assert ours(insert, conn, run, f"{who}/{n}").inserted

        def by_owner(conn, who):
            for n in range(20):
                owners(lambda: conn.execute(plain, (run, f"{who}/{n}", run)))

        work = [(by_bide if who % 2 else by_owner, conn, who) for who, conn in enumerate(conns)]
        rng.shuffle(work)
        assert failures(race([lambda w=w: w[0](w[1], w[2]) for w in work])) == []
        steps = load_all(conns[0], run)
    assert_gap_free(steps)
    assert len(steps) == 160
    print(f"{path_db.path}: bide ran again {dict(ours.counts)}, the owner {dict(owners.counts)}")
    assert set(ours.counts) <= {"23505"}
