# A call that waits for the run lock can be ended: cancel, statement_timeout, lock_timeout, terminate.
# Nothing is written, no lock stays, the same session's next call is fine.  C-26, C-41, C-123, C-133.
# Method: an open block holds the run's lock; the call is shown to wait on it; then it is ended.
# Control: the block commits instead, and the call succeeds.

import pytest

from calls import allow_block, assert_gap_free, call, insert, load_all, runs, sqlstate_of
from racing import Background, sessions
from waits import pid_of, run_locks, wait_blocked, wait_for_run_lock, wait_ungranted, wait_until

CALLS = {
    "insert": ("SELECT seq FROM bide.insert(%s, 'waits', 'x')", 1),
    "insert_json": ("SELECT seq FROM bide.insert_json(%s, 'waits', '{}')", 1),
    "insert_many": ("SELECT seq FROM bide.insert_many(%s, ARRAY['waits', 'too'], ARRAY['x', 'y']::bytea[])", 2),
    "next_seq": ("SELECT bide.next_seq(%s) AS seq", 0),
}


@pytest.fixture(params=CALLS)
def waiting_call(request):
    return CALLS[request.param]


class Held:
    """A run whose lock is held by an open block."""

    def __init__(self, path_db, run):
        self.holder, self.watcher = path_db.connect(), path_db.connect()
        self.run = run
        insert(self.holder, run, "zero")
        self.holder.execute("BEGIN")
        allow_block(self.holder)
        insert(self.holder, run, "one")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.close()
        self.watcher.close()

    def waits(self, conn, sql) -> Background:
        started = Background(lambda: call(conn, sql, self.run))
        wait_for_run_lock(self.watcher, pid_of(conn), by=pid_of(self.holder))
        return started

    def names(self):
        return [step.name for step in load_all(self.watcher, self.run)]


def ended(held, conn, sql):
    """After an ended call: nothing written, no lock, the next call fine."""
    assert held.names() == ["zero"]
    assert run_locks(held.watcher) == [(pid_of(held.holder), True)]
    assert insert(conn, held.run + "/other", "a").seq == 0
    held.holder.execute("COMMIT")
    assert call(conn, sql, held.run)[0].seq == 2
    assert held.names()[:2] == ["zero", "one"]
    assert_gap_free(load_all(held.watcher, held.run))


@pytest.mark.core
def test_cancel(path_db, run, waiting_call, request):
    sql, _ = waiting_call
    with Held(path_db, request.node.name) as held, path_db.connect() as conn:
        waiting = held.waits(conn, sql)
        conn.cancel()
        assert waiting.error().sqlstate == "57014"
        ended(held, conn, sql)


@pytest.mark.core
@pytest.mark.parametrize("setting, state", [("statement_timeout", "57014"), ("lock_timeout", "55P03")])
def test_timeouts(path_db, run, waiting_call, request, setting, state):
    sql, _ = waiting_call
    with Held(path_db, request.node.name) as held, path_db.connect() as conn:
        conn.execute(f"SET {setting} = '100ms'")
        assert sqlstate_of(call, conn, sql, held.run) == state
        conn.execute(f"RESET {setting}")
        ended(held, conn, sql)


def test_control_the_call_goes_on_when_the_lock_is_free(path_db, run, waiting_call, request):
    sql, written = waiting_call
    with Held(path_db, request.node.name) as held, path_db.connect() as conn:
        waiting = held.waits(conn, sql)
        held.holder.execute("COMMIT")
        assert waiting.result()[0].seq == 2
        assert len(held.names()) == 2 + written


def test_terminate_harms_nobody_else(path_db, run, request):
    sql, _ = CALLS["insert"]
    with Held(path_db, request.node.name) as held, path_db.connect() as conn, path_db.connect() as other:
        waiting = held.waits(conn, sql)
        held.watcher.execute("SELECT pg_terminate_backend(%s)", (pid_of(conn),))
        assert waiting.error().sqlstate in ("57P01", None), "the connection is gone"
        wait_until(lambda: run_locks(held.watcher) == [(pid_of(held.holder), True)], what="its lock to go")
        ended(held, other, sql)


def test_an_idle_block_that_times_out_frees_the_run(path_db, run):
    """A stalled client inside an allowed block: the server's own timeout ends it."""
    run = f"{run} {path_db.path}"
    with path_db.connect(settings={"idle_in_transaction_session_timeout": "200ms"}) as stalled:
        stalled.execute("BEGIN")
        allow_block(stalled)
        insert(stalled, run, "lost")
        with path_db.connect() as other:
            assert insert(other, run, "kept") == (0, True, None)
        assert sqlstate_of(stalled.execute, "COMMIT") in ("25P03", "57P01", None) or stalled.closed


@pytest.mark.parametrize("how, state", [("cancel", "57014"), ("statement_timeout", "57014"), ("lock_timeout", "55P03")])
def test_ended_while_it_waits_for_a_key(path_db, run, how, state):
    """Someone who took no lock holds the position: ours waits inside the index, its row already written."""
    run = f"{run} {path_db.path} {how}"
    with path_db.connect() as owner, path_db.connect() as conn, path_db.connect() as watcher:
        owner.execute("BEGIN")
        owner.execute("INSERT INTO bide.steps (run_id, seq, name, data) VALUES (%s, 0, 'owner', '')", (run,))
        if how != "cancel":
            conn.execute(f"SET {how} = '200ms'")
        waiting = Background(lambda: insert(conn, run, "ours"))
        if how == "cancel":
            wait_blocked(watcher, pid_of(conn), by=pid_of(owner))
            conn.cancel()
        assert waiting.error().sqlstate == state
        conn.execute("RESET ALL")
        assert run_locks(watcher) == []
        owner.execute("ROLLBACK")
        assert load_all(watcher, run) == []
        assert insert(conn, run, "ours").seq == 0
    path_db.amcheck("bide.steps")


def test_cancel_inside_a_savepoint(path_db, run):
    run = f"{run} {path_db.path}"
    with Held(path_db, run) as held, path_db.connect() as conn:
        conn.execute("BEGIN")
        allow_block(conn)
        insert(conn, run + "/before", "a")
        conn.execute("SAVEPOINT s")
        waiting = held.waits(conn, CALLS["insert"][0])
        conn.cancel()
        assert waiting.error().sqlstate == "57014"
        conn.execute("ROLLBACK TO SAVEPOINT s")
        assert len(run_locks(held.watcher, pid_of(conn))) == 1
        assert insert(conn, run + "/after", "a").seq == 0
        conn.execute("COMMIT")
        assert len(load_all(held.watcher, run + "/before")) == len(load_all(held.watcher, run + "/after")) == 1
        assert held.names() == ["zero"]


def test_a_queue_of_cancelled_calls_lets_the_rest_through(path_db, run, rng):
    """Of 16 queued calls a random half is cancelled; the others take the next positions."""
    run = f"{run} {path_db.path}"
    with Held(path_db, run) as held, sessions(path_db.connect, 16) as conns:
        queued = [Background(lambda c=c, n=n: insert(c, run, f"queued {n}")) for n, c in enumerate(conns)]
        wait_ungranted(held.watcher, 16)
        gone = set(rng.sample(range(16), 8))
        for number in gone:
            conns[number].cancel()
        assert {queued[number].error().sqlstate for number in gone} == {"57014"}
        held.holder.execute("COMMIT")
        taken = sorted(queued[number].result().seq for number in set(range(16)) - gone)
        assert taken == list(range(2, 10))
        assert_gap_free(load_all(held.watcher, run))


LONG = {
    "insert_many": (
        "SELECT count(*) FROM bide.insert_many(%s, (SELECT array_agg('n' || g) FROM generate_series(1, 300000) g),"
        " (SELECT array_agg(''::bytea) FROM generate_series(1, 300000)))"
    ),
    "many calls": (
        "SELECT count(*) FROM generate_series(1, 300000) g, LATERAL bide.insert(%s, 'n' || g, '')"
    ),
}


@pytest.mark.parametrize("which", LONG)
def test_a_long_call_is_cancelled_while_it_works(path_db, run, which):
    run = f"{run} {path_db.path} {which}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        working = Background(lambda: call(conn, LONG[which], run))
        # It holds the lock, so it has begun to write; its rows come after.
        wait_until(lambda: run_locks(watcher, pid_of(conn)), what="the call to have begun")
        conn.cancel()
        assert working.error(10).sqlstate == "57014"
        assert load_all(watcher, run) == [] and run_locks(watcher, pid_of(conn)) == []
        assert insert(conn, run, "next").seq == 0
        assert run in runs(conn, prefix=run)
