# Promise 10: nothing acknowledged is lost, and no gap, in crash and kill.  C-26, C-28, C-104, C-107.
# Method: a durable cluster of its own. A backend is killed (SIGKILL: the postmaster resets the server) at
# known points inside insert, each shown by what it waits for, and at random points under 16 writers; the
# server is stopped hard (immediate) under 16 writers. After recovery: every acknowledged step is there with
# its position and bytes, positions are 0..n-1, the steps in flight are absent or complete and can be sent
# again, heap and indexes agree (amcheck).
# Control: with synchronous_commit off the same check may lose acknowledged steps: it must be able to tell,
# so one acknowledged step is deleted by hand and must be missed.

from __future__ import annotations

import threading

import psycopg
import pytest

from calls import allow_block, assert_gap_free, get, insert, load_all, sqlstate_of
from cluster import Cluster
from conftest import NOT_PLAIN, Database
from racing import Background, failures, race
from waits import pid_of, run_locks, wait_blocked, wait_for_run_lock, wait_until

pytestmark = pytest.mark.timeout(600)

WRITERS = 16
RUNS = 4


@pytest.fixture(scope="module")
def own():
    with Cluster("crash", durable=True) as made:
        made.psql("CREATE EXTENSION bide; CREATE DATABASE through_spi TEMPLATE template0")
        made.psql(f"CREATE EXTENSION bide; {NOT_PLAIN}", dbname="through_spi")
        yield made
        made.assert_log_clean()


@pytest.fixture(params=["direct", "spi"])
def hurt(own, request):
    """A database on the server that is going to crash."""
    yield Database(own, {"direct": "postgres", "spi": "through_spi"}[request.param], request.param)
    own.start()


def kill_and_recover(db, pid):
    """The postmaster takes all backends down and comes back by itself."""
    db.cluster.sigkill(pid)

    def back():
        try:
            with db.connect() as conn:
                # A new session after recovery, not one of the doomed ones.
                return conn.execute("SELECT pid FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None
        except psycopg.OperationalError:
            return False

    wait_until(back, 60, "the server to recover")


# -- known points ------------------------------------------------------------------------------


def lost(call: Background):
    """The call ended with the connection, so its caller knows nothing."""
    with pytest.raises(psycopg.OperationalError):
        call.result(60)


def after_the_crash(db, run, acknowledged):
    with db.connect() as conn:
        for (name, data), seq in acknowledged.items():
            found = get(conn, run, name)
            assert (found.seq, found.data) == (seq, data)
        steps = load_all(conn, run)
        assert_gap_free(steps)
        assert {step.name for step in steps} == {name for name, _ in acknowledged}
        again = insert(conn, run, "in flight", b"again")
        assert again == (len(acknowledged), True, None), "it was not acknowledged, and is not there"
    db.amcheck("bide.steps")


@pytest.mark.core
def test_killed_while_it_waits_for_the_run_lock(hurt, run):
    run = f"{run} {hurt.path}"
    holder, victim, watcher = hurt.connect(), hurt.connect(), hurt.connect()
    acknowledged = {("zero", b"0"): insert(holder, run, "zero", b"0").seq}
    holder.execute("BEGIN")
    allow_block(holder)
    insert(holder, run, "not committed")
    call = Background(lambda: insert(victim, run, "in flight"))
    wait_for_run_lock(watcher, pid_of(victim), by=pid_of(holder))
    kill_and_recover(hurt, pid_of(victim))
    lost(call)
    after_the_crash(hurt, run, acknowledged)


@pytest.mark.core
def test_killed_between_its_heap_row_and_its_index_entries(hurt, run):
    """The owner holds the position without the lock: ours has written its row and waits in an index."""
    run = f"{run} {hurt.path}"
    owner, victim, watcher = hurt.connect(), hurt.connect(), hurt.connect()
    acknowledged = {("zero", b"0"): insert(owner, run, "zero", b"0").seq}
    owner.execute("BEGIN")
    owner.execute("INSERT INTO bide.steps (run_id, seq, name, data) VALUES (%s, 1, 'owner', '')", (run,))
    call = Background(lambda: insert(victim, run, "in flight"))
    wait_blocked(watcher, pid_of(victim), by=pid_of(owner))
    assert run_locks(watcher, pid_of(victim)) == [(pid_of(victim), True)]
    kill_and_recover(hurt, pid_of(victim))
    lost(call)
    after_the_crash(hurt, run, acknowledged)


def test_killed_at_commit(own, run):
    """A deferred trigger keeps the commit waiting: the step is complete but not committed."""
    db = Database(own, "at_commit", "spi")
    own.psql("CREATE DATABASE at_commit TEMPLATE template0")
    db.psql(
        """CREATE EXTENSION bide;
        CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(4711); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON bide.steps DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION public.hold()"""
    )
    gate, victim, watcher = db.connect(), db.connect(), db.connect()
    acknowledged = {("zero", b"0"): insert(gate, run, "zero", b"0").seq}
    gate.execute("SELECT pg_advisory_lock(4711)")
    call = Background(lambda: insert(victim, run, "in flight"))
    wait_blocked(watcher, pid_of(victim), by=pid_of(gate))
    kill_and_recover(db, pid_of(victim))
    lost(call)
    after_the_crash(db, run, acknowledged)


def test_killed_inside_insert_many(hurt, run):
    """All or nothing: the server dies while one call of many steps is writing."""
    run = f"{run} {hurt.path}"
    victim, watcher = hurt.connect(), hurt.connect()
    acknowledged = {("zero", b"0"): insert(victim, run, "zero", b"0").seq}
    sql = (
        "SELECT count(*) FROM bide.insert_many(%s, (SELECT array_agg('n' || g) FROM generate_series(1, 200000) g),"
        " (SELECT array_agg(''::bytea) FROM generate_series(1, 200000)))"
    )
    before = hurt.psql("SELECT pg_relation_size('bide.steps')")
    call = Background(lambda: victim.execute(sql, (run,)))
    wait_until(
        lambda: watcher.execute("SELECT pg_relation_size('bide.steps') > %s::bigint + 65536", (before,)).fetchone()[0],
        60, "the call to be writing",
    )  # fmt: skip
    assert not call.done
    kill_and_recover(hurt, pid_of(victim))
    lost(call)
    after_the_crash(hurt, run, acknowledged)


def test_a_prepared_transaction_survives_with_its_lock(hurt, run):
    """Two-phase commit over a crash: the step is decided later, and until then the run stays locked."""
    run = f"{run} {hurt.path}"
    with hurt.connect() as conn:
        insert(conn, run, "zero", b"0")
        conn.execute("BEGIN")
        allow_block(conn)
        insert(conn, run, "prepared")
        conn.execute(f"PREPARE TRANSACTION '{run}'")
    hurt.cluster.restart("immediate")
    with hurt.connect(settings={"lock_timeout": "300ms"}) as conn:
        assert [step.name for step in load_all(conn, run)] == ["zero"]
        assert sqlstate_of(insert, conn, run, "other") == "55P03"
        conn.execute(f"COMMIT PREPARED '{run}'")
        assert insert(conn, run, "other").seq == 2
        assert_gap_free(load_all(conn, run))


# -- random points under load ------------------------------------------------------------------


class Load:
    """Writers on a few runs; what each was told, and what it was about to hear when the server went."""

    def __init__(self, db, prefix):
        self.db, self.prefix = db, prefix
        self.acknowledged: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.in_flight: dict[int, tuple[str, str, bytes] | None] = {}
        self.count = [0] * WRITERS
        self.pids: dict[int, int] = {}
        self._stop = threading.Event()

    def writer(self, who):
        with self.db.connect() as conn:
            self.pids[who] = pid_of(conn)
            while not self._stop.is_set():
                n = self.count[who]
                step = f"{self.prefix}/{(who + n) % RUNS}", f"{who}/{n}", b"%d of %d" % (n, who)
                self.in_flight[who] = step
                try:
                    row = insert(conn, *step)
                except psycopg.OperationalError:
                    return
                assert row.inserted
                self.acknowledged[step[:2]] = row.seq, step[2]
                self.in_flight[who] = None
                self.count[who] += 1

    def crash_after(self, more: int, crash):
        """Starts the writers, waits for `more` acknowledged steps, crashes the server."""
        self._stop.clear()
        goal = len(self.acknowledged) + more
        writing = Background(lambda: race([lambda w=w: self.writer(w) for w in range(WRITERS)]))
        try:
            wait_until(lambda: len(self.acknowledged) >= goal, 60, f"{goal} acknowledged steps")
            crash()
        finally:
            self._stop.set()
        assert failures(writing.result(120)) == []

    def check(self):
        with self.db.connect() as conn:
            stored = {}
            for number in range(RUNS):
                target = f"{self.prefix}/{number}"
                steps = load_all(conn, target)
                assert_gap_free(steps)
                stored |= {(target, step.name): (step.seq, step.data) for step in steps}
        missing = [step for step, what in self.acknowledged.items() if stored.get(step) != what]
        assert not missing, f"{len(missing)} acknowledged steps are gone or changed: {missing[:5]}"
        complete = [step for step in self.in_flight.values() if step and step[:2] in stored]
        expected = set(self.acknowledged) | {step[:2] for step in complete}
        assert set(stored) == expected, "a step nobody sent"
        assert all(stored[step[:2]][1] == step[2] for step in complete), "a step in flight is half there"
        return len(complete)

    def resend(self):
        """What was in flight is sent again: recorded once, whatever had become of it."""
        with self.db.connect() as conn:
            for who, step in self.in_flight.items():
                if step:
                    row = insert(conn, *step)
                    assert row.stored in (None, step[2])
                    self.acknowledged[step[:2]] = row.seq, step[2]
                    self.in_flight[who] = None
                    self.count[who] += 1


def rounds_of(db, run, rng, rounds, crash):
    load = Load(db, f"{run} {db.path}")
    for number in range(rounds):
        load.crash_after(rng.randrange(50, 800), lambda: crash(load))
        complete = load.check()
        load.resend()
        assert load.check() == 0
        print(
            f"{db.path}, crash {number + 1}: {len(load.acknowledged)} steps acknowledged;"
            f" {complete} of those in flight had been recorded"
        )
    db.amcheck("bide.steps")
    return load


def by_kill(rng):
    return lambda load: kill_and_recover(load.db, load.pids[rng.randrange(WRITERS)])


def by_immediate_stop(load):
    load.db.cluster.restart("immediate")


@pytest.mark.core
def test_a_backend_killed_under_16_writers(hurt, run, rng):
    rounds_of(hurt, run, rng, 2, by_kill(rng))


@pytest.mark.core
def test_immediate_stop_under_16_writers(hurt, run, rng):
    rounds_of(hurt, run, rng, 2, by_immediate_stop)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["kill", "immediate stop"])
def test_many_crashes_under_16_writers(hurt, run, rng, how):
    rounds_of(hurt, f"{run} {how}", rng, 50, by_kill(rng) if how == "kill" else by_immediate_stop)


def test_control_a_lost_step_is_noticed(hurt, run, rng):
    load = rounds_of(hurt, run, rng, 1, by_immediate_stop)
    (target, name), _ = max(load.acknowledged.items(), key=lambda item: item[1][0])
    with hurt.connect() as conn:
        conn.execute("DELETE FROM bide.steps WHERE run_id = %s AND name = %s", (target, name))
    with pytest.raises(AssertionError, match="acknowledged steps are gone"):
        load.check()
