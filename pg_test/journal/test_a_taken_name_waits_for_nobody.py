# A resend of a recorded step takes no lock and queues behind nobody.  C-21, C-25, C-28, C-29, C-104.
# Method: an open block holds the run's lock; resends of a recorded step answer at once, under a
# statement_timeout, and hold nothing. A client that loses the reply (its socket is closed unread) and asks
# again gets the recorded step, once.
# Control: a free name under the same lock does wait.

from contextlib import closing

import pytest

from calls import LEVELS, allow_block, assert_gap_free, call, insert, load_all, sqlstate_of
from racing import sessions
from waits import pid_of, run_locks, wait_until


@pytest.mark.core
@pytest.mark.parametrize("level", LEVELS)
def test_a_resend_passes_the_queue(path_db, run, level):
    run = f"{run} {path_db.path} {level}"
    with sessions(path_db.connect, 2, level) as (holder, resender), path_db.connect() as watcher:
        insert(holder, run, "old", b"stored")
        holder.execute("BEGIN")
        allow_block(holder)
        insert(holder, run, "new")
        resender.execute("SET statement_timeout = '10s'")
        for _ in range(3):
            assert insert(resender, run, "old", b"other") == (0, False, b"stored")
        rows = call(
            resender,
            "SELECT name, seq, inserted FROM bide.insert_many(%s, ARRAY['old', 'old'], ARRAY['', '']::bytea[])",
            run,
        )
        assert rows == [("old", 0, False), ("old", 0, False)]
        # Inside a block of its own it holds nothing afterwards either.
        resender.execute("BEGIN")
        allow_block(resender)
        assert not insert(resender, run, "old").inserted
        assert run_locks(watcher) == [(pid_of(holder), True)]
        resender.execute("COMMIT")
        resender.execute("SET statement_timeout = '200ms'")
        assert sqlstate_of(insert, resender, run, "free") == "57014", "control: a free name waits"
        holder.execute("COMMIT")
        assert insert(resender, run, "free").seq == 2


def test_a_refused_insert_uses_no_position(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn:
        for number in range(5):
            assert insert(conn, run, f"step {number}") == (number, True, None)
            for taken in range(number + 1):
                assert insert(conn, run, f"step {taken}", b"x") == (taken, False, b"")
        assert_gap_free(load_all(conn, run))


def test_an_unread_reply_is_asked_for_again(path_db, run, rng):
    run = f"{run} {path_db.path}"
    with path_db.connect() as watcher:
        recorded = 0
        for number in range(20):
            with closing(path_db.connect()) as conn:
                pid = pid_of(conn)
                conn.pgconn.send_query_params(
                    b"SELECT seq FROM bide.insert($1, $2, 'once')", [run.encode(), b"step %d" % number]
                )
                conn.pgconn.flush()
                if rng.random() < 0.5:  # half of them: the server has done it, nobody reads it
                    wait_until(lambda: len(load_all(watcher, run)) > number, what="the step")
            wait_until(
                lambda: watcher.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None,
                what="the lost session to end",
            )
            again = insert(watcher, run, f"step {number}", b"again")
            recorded += not again.inserted
            assert again.seq == number
            assert again.stored == (None if again.inserted else b"once")
        assert_gap_free(load_all(watcher, run))
        print(f"{path_db.path}: {recorded} of 20 had been recorded")
        assert recorded > 0
