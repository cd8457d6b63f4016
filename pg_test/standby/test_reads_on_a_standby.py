# Reads work on a streaming standby, give the primary's answers and assign no transaction id; writes fail
# cleanly with 25006. After promotion the run goes on at its next position.  C-142; design.md 2, 4, 6.
# Method: a primary and a standby of our own; compared once the standby has replayed what was written.
# Control: the standby does see what is written later, so that equal answers are not old ones; the same
# writes succeed on it after promotion.

import psycopg
import pytest

from calls import assert_gap_free, get, insert, insert_many, load, load_all, runs, sqlstate_of
from cluster import Cluster
from functions import BY_NAME, FUNCTIONS, fill, ids
from racing import Until
from waits import wait_until

READS = tuple(f for f in FUNCTIONS if not f.writes and f.name != "grant_access")
WRITES = tuple(f for f in FUNCTIONS if f not in READS)
STEPS = 600


@pytest.fixture(scope="module")
def primary():
    with Cluster("primary") as made:
        made.psql("CREATE EXTENSION bide")
        with made.connect() as conn:
            fill(conn)
            for n in range(STEPS // 100):
                insert_many(conn, "long", [f"step {n}/{k}" for k in range(100)], [b"%d" % n] * 100)
        yield made


@pytest.fixture(scope="module")
def standby(primary):
    copy = primary.basebackup("standby", conf={"max_standby_streaming_delay": "-1"})
    copy.start()
    catch_up(primary, copy)
    return copy


def catch_up(primary: Cluster, standby: Cluster) -> None:
    with primary.connect() as there, standby.connect() as here:
        there.execute(
            "SELECT pg_logical_emit_message(true, 'test', '')"
        )  # a commit, so that there is an end to replay
        written = there.execute("SELECT pg_current_wal_flush_lsn()").fetchone()[0]
        wait_until(
            lambda: here.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchone()[0],
            what=f"the standby to replay {written}",
        )


@pytest.mark.core
@pytest.mark.parametrize("function", READS, ids=ids(READS))
def test_each_read_gives_the_primarys_answer(primary, standby, function):
    with primary.connect() as there, standby.connect() as here:
        assert here.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
        assert function.call(here) == function.call(there)


@pytest.mark.core
def test_what_is_written_later_arrives(primary, standby):
    with primary.connect() as there, standby.connect() as here:
        assert load_all(here, "long") == load_all(there, "long")
        assert get(here, "long", "later") is None
        assert insert(there, "long", "later", b"\x00\xff").seq == STEPS
        catch_up(primary, standby)
        assert get(here, "long", "later")[:2] == (STEPS, b"\x00\xff")
        assert load(here, "long", after=STEPS - 1) == load(there, "long", after=STEPS - 1)
        assert runs(here) == runs(there) == ["a finished run", "a run", "long"]
        filtered = "SELECT run_id FROM bide.runs(exclude_holding => '{run:complete}', prefix => 'a ')"
        assert here.execute(filtered).fetchall() == [("a run",)]


@pytest.mark.core
@pytest.mark.parametrize("function", READS, ids=ids(READS))
def test_reads_assign_no_transaction_id(primary, standby, function):
    assigned = "SELECT pg_current_xact_id_if_assigned()"
    for cluster in (standby, primary):
        with cluster.connect() as conn:
            conn.execute("BEGIN")
            function.call(conn)
            assert conn.execute(assigned).fetchone() == (None,)
            conn.execute("COMMIT")


@pytest.mark.core
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
@pytest.mark.parametrize("block", [False, True], ids=["autocommit", "block"])
@pytest.mark.parametrize("function", WRITES, ids=ids(WRITES))
def test_each_write_is_refused_clearly(standby, function, level, block):
    settings = {"default_transaction_isolation": level, "bide.transaction_block": "allow" if block else "error"}
    with standby.connect(settings=settings) as conn:
        before = load_all(conn, "a run")
        if block:
            conn.execute("BEGIN")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as refused:
            function.call(conn)
        message = refused.value.diag.message_primary
        if function.name != "grant_access":
            assert f"bide.{function.name}()" in message
        assert "read-only" in message or "during recovery" in message
        if block:
            conn.execute("ROLLBACK")
        assert load_all(conn, "a run") == before
        assert conn.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)


def test_a_reader_on_the_standby_sees_prefixes(primary, standby):
    """While the primary writes, each reading is 0 … n - 1, and the run never shrinks."""
    with primary.connect() as writer, standby.connect() as reader:
        lengths = [0]

        def read():
            steps = load_all(reader, "growing")
            assert_gap_free(steps)
            assert len(steps) >= lengths[-1], "the run shrank"
            lengths.append(len(steps))

        with Until(read):
            for n in range(500):
                insert(writer, "growing", f"step {n}", b"data")
            wait_until(lambda: lengths[-1] == 500, what="the reader to see all")
        assert len(set(lengths)) > 2, "control: it read while the run grew"


@pytest.mark.core
def test_the_run_goes_on_after_promotion(primary):
    """Last: with a standby of its own, since the promoted one follows nobody."""
    promoted = primary.basebackup("promoted")
    promoted.start()
    catch_up(primary, promoted)
    with promoted.connect() as warm:
        steps = load_all(warm, "long")  # a session from before, its caches filled
        assert sqlstate_of(insert, warm, "long", "first after") == "25006"
        promoted.promote()
        wait_until(lambda: not warm.execute("SELECT pg_is_in_recovery()").fetchone()[0], what="the promotion")
        assert insert(warm, "long", "first after", b"new") == (len(steps), True, None)
        with promoted.connect() as fresh:
            assert insert(fresh, "long", "second after").seq == len(steps) + 1
            assert insert(fresh, "long", steps[3].name, b"again") == (3, False, steps[3].data)
            assert_gap_free(load_all(fresh, "long"))
            assert len(BY_NAME["purge_run"].call(fresh)) == 1
            assert "a finished run" not in runs(fresh)
    promoted.amcheck("bide.steps")
