# next_seq: the tables' owner can insert by himself and queue with everybody else.
# C-10, C-91, C-92, C-97, C-128.
# Method: owner's INSERT with next_seq and bide.insert, each held open before the other, at every level; then
# both at once under load, where nobody may fail on the direct path.
# Control: test_lock_life.py, where the owner's INSERT without next_seq makes others fail with 23505.

import pytest

from calls import LEVELS, allow_block, assert_gap_free, insert, load_all
from racing import Background, Retries, failures, race, sessions
from waits import pid_of, run_locks, wait_for_run_lock

OWNERS = "INSERT INTO bide.steps (run_id, seq, name, data) SELECT %s, bide.next_seq(%s), %s, '' RETURNING seq"


def owners(conn, run, name):
    return conn.execute(OWNERS, (run, run, name)).fetchone()[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("first", ["bide", "owner"])
def test_they_queue_in_both_orders(path_db, run, level, first):
    run = f"{run} {path_db.path} {level} {first}"
    with sessions(path_db.connect, 2, level) as (one, two), path_db.connect() as watcher:
        insert(watcher, run, "zero")
        one.execute("BEGIN")
        allow_block(one)
        if first == "bide":
            assert insert(one, run, "a").seq == 1
            later = Background(lambda: owners(two, run, "b"))
        else:
            assert owners(one, run, "a") == 1
            later = Background(lambda: insert(two, run, "b").seq)
        wait_for_run_lock(watcher, pid_of(two), by=pid_of(one))
        one.execute("COMMIT")
        assert later.result() == 2
        assert run_locks(watcher) == []
        assert_gap_free(load_all(watcher, run))


@pytest.mark.parametrize("level", LEVELS)
def test_they_mix_without_error(path_db, run, level):
    run = f"{run} {path_db.path} {level}"
    retries = Retries()
    with sessions(path_db.connect, 16, level) as conns:

        def writer(conn, who):
            for n in range(10):
                retries(owners if who % 2 else insert, conn, run, f"{who}/{n}")

        assert failures(race([lambda c=c, w=w: writer(c, w) for w, c in enumerate(conns)])) == []
        steps = load_all(conns[0], run)
    assert_gap_free(steps)
    assert len(steps) == 160
    print(f"{path_db.path}, {level}: run again {dict(retries.counts)}")
    # At serializable the owner's own INSERT takes part in conflict detection; ours does not.
    if level != "serializable":
        assert not retries.counts


def test_next_seq_alone_promises_nothing_and_uses_nothing(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        for _ in range(3):
            assert conn.execute("SELECT bide.next_seq(%s)", (run,)).fetchone() == (0,)
        assert run_locks(watcher) == []
        assert insert(conn, run, "a").seq == 0
        assert conn.execute("SELECT bide.next_seq(%s)", (run,)).fetchone() == (1,)
