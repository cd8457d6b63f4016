# Promise 5: an insert updates no row; a committed insert leaves no dead row. At most one flush of the WAL a
# call, none for a call that records nothing.  C-25, C-30; design.md 1 (5), 5.
# Method: a server of its own where nothing else writes (no autovacuum, no replication), durable, so that
# flushes happen; 10,000 inserts, then the server's own counters: rows updated and dead, WAL flushes, WAL bytes,
# transaction ids.
# Control: a counter row that every insert updates shows as updates and dead rows, and a call followed by a
# second commit as two flushes.

import itertools

import pytest

from calls import allow_block, insert, insert_many
from cluster import Cluster
from waits import wait_until

INSERTS = 10_000
FLUSHED = 500
# Beside ours: the WAL writer, which wakes every 10 s, and the end of a 16 MB segment.
FLUSHES_OF_OTHERS = 5

QUIET = {
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_writer_delay": "10s",
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
    "bgwriter_delay": "10s",
    "track_wal_io_timing": "off",
}
_names = itertools.count(1)
NOT_PLAIN = "ALTER TABLE bide.steps ADD CONSTRAINT harmless CHECK (seq >= 0)"
COUNTER = """
CREATE TABLE counters (run_id text PRIMARY KEY, next bigint);
CREATE TABLE counted (run_id text, seq bigint, name text, PRIMARY KEY (run_id, name), UNIQUE (run_id, seq));
CREATE FUNCTION counted_insert(run text, step text) RETURNS bigint LANGUAGE sql AS $$
    WITH c AS (
        INSERT INTO counters AS c VALUES (run, 1) ON CONFLICT (run_id) DO UPDATE SET next = c.next + 1 RETURNING next
    )
    INSERT INTO counted SELECT run, c.next - 1, step FROM c RETURNING seq
$$;
"""


@pytest.fixture(scope="module")
def quiet():
    with Cluster("quiet", durable=True, conf=QUIET) as made:
        yield made


@pytest.fixture(params=["direct", "spi"])
def quiet_db(quiet, request):
    """A database of its own on the quiet server; its name."""
    name = f"{request.param}_{next(_names)}"
    quiet.psql(f"CREATE DATABASE {name} TEMPLATE template0")
    quiet.psql(f"CREATE EXTENSION bide; {NOT_PLAIN if request.param == 'spi' else ''}; {COUNTER}", dbname=name)
    yield name
    quiet.psql(f"DROP DATABASE {name} WITH (FORCE)")


def counted(watcher, table: str, inserted: int) -> tuple[int, int, int, int]:
    """(inserted, updated, deleted, dead) of a table, once the counters have arrived."""

    def arrived():
        row = watcher.execute(
            "SELECT n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup FROM pg_stat_all_tables WHERE relid = %s::regclass",
            (table,),
        ).fetchone()
        return row if row and row[0] >= inserted else None

    return wait_until(arrived, what=f"the counters of {table} to show {inserted} rows")


def flushes(watcher) -> int:
    if watcher.info.server_version >= 180000:
        sql = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'"
    else:
        sql = "SELECT wal_sync FROM pg_stat_wal"
    return int(watcher.execute(sql).fetchone()[0])


def flushes_of(quiet, name: str, watcher, work) -> int:
    """WAL flushes of a session that does `work`; its counters are all in when it has ended."""
    before = flushes(watcher)
    with quiet.connect(dbname=name) as conn:
        work(conn)
        pid = conn.info.backend_pid
    wait_until(
        lambda: not watcher.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall(),
        what="the session to end",
    )
    if watcher.info.server_version < 150000:  # counters travel as messages there
        last = [before]
        wait_until(lambda: last.append(flushes(watcher)) or (last[-1] > before and last[-1] == last[-2]))
    return flushes(watcher) - before


@pytest.mark.core
def test_ten_thousand_inserts_update_no_row_and_leave_none_dead(quiet, quiet_db):
    with quiet.connect(dbname=quiet_db, settings={"synchronous_commit": "off"}) as conn:
        for n in range(INSERTS // 2):
            insert(conn, f"run {n % 50}", f"step {n}", b"data")
        for n in range(INSERTS // 200):
            names = [f"many {n}/{k}" for k in range(100)]
            assert len(insert_many(conn, f"run {n % 50}", names, [b"data"] * 100)) == 100
        assert not insert(conn, "run 0", "step 0", b"other").inserted
        for n in range(100):
            conn.execute("SELECT counted_insert('run', %s)", (f"step {n}",))
    with quiet.connect(dbname=quiet_db) as watcher:
        assert counted(watcher, "bide.steps", INSERTS) == (INSERTS, 0, 0, 0)
        for table in ("bide.leases", "bide.stores", "bide.schema_version"):
            assert counted(watcher, table, 0)[1:] == (0, 0, 0)
        inserted, updated, _deleted, dead = counted(watcher, "counters", 1)
        assert (inserted, updated) == (1, 99) and dead > 0, "control: updates and dead rows are seen"


@pytest.mark.core
def test_a_call_flushes_the_wal_at_most_once(quiet, quiet_db):
    def insert_each(conn):
        for n in range(FLUSHED):
            insert(conn, "flush", f"step {n}", b"data")

    def insert_hundreds(conn):
        for n in range(FLUSHED // 10):
            insert_many(conn, "flush many", [f"{n}/{k}" for k in range(100)], [b"data"] * 100)

    def insert_and_commit_again(conn):
        for n in range(FLUSHED):
            insert(conn, "flush twice", f"step {n}", b"data")
            conn.execute("INSERT INTO counted VALUES ('beside', %s, %s)", (n, f"step {n}"))

    def insert_taken(conn):
        for n in range(FLUSHED):
            assert not insert(conn, "flush", f"step {n}", b"other").inserted

    def insert_elsewhere(conn):
        for n in range(FLUSHED):
            conn.execute("INSERT INTO counted VALUES ('before', %s, %s)", (n, f"step {n}"))

    with quiet.connect(dbname=quiet_db) as watcher:
        # On 14 what CREATE DATABASE made the checkpointer flush is counted late: in here.
        flushes_of(quiet, quiet_db, watcher, insert_elsewhere)
        each = flushes_of(quiet, quiet_db, watcher, insert_each)
        assert FLUSHED <= each <= FLUSHED + FLUSHES_OF_OTHERS
        many = flushes_of(quiet, quiet_db, watcher, insert_hundreds)
        assert FLUSHED // 10 <= many <= FLUSHED // 10 + FLUSHES_OF_OTHERS
        control = flushes_of(quiet, quiet_db, watcher, insert_and_commit_again)
        assert control >= 2 * FLUSHED, "control: a second commit is a second flush"
        if watcher.info.server_version >= 150000:
            assert flushes_of(quiet, quiet_db, watcher, insert_taken) <= FLUSHES_OF_OTHERS


@pytest.mark.core
def test_a_taken_name_costs_no_transaction_id_and_no_wal(quiet, quiet_db):
    place = "SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    with quiet.connect(dbname=quiet_db) as conn, quiet.connect(dbname=quiet_db) as watcher:
        insert_many(conn, "run", [f"step {n}" for n in range(100)], [b"data"] * 100)
        conn.execute("SELECT count(*) FROM bide.steps")  # sets the hint bits
        for _ in range(2):  # the first round warms caches
            before = watcher.execute(place).fetchone()
            for n in range(100):
                assert insert(conn, "run", f"step {n}", b"other") == (n, False, b"data")
            refused = insert_many(conn, "run", ["step 7", "step 9"], [b"", b""])
            assert [(step.seq, step.inserted) for step in refused] == [(7, False), (9, False)]
            conn.execute("SELECT seq FROM bide.get('run', 'step 7')")
            conn.execute("SELECT seq FROM bide.load('run')")
            conn.execute("SELECT run_id FROM bide.runs()")
            after = watcher.execute(place).fetchone()
        assert after == before
        insert(conn, "run", "control", b"")
        assert watcher.execute(place).fetchone()[0] != before[0], "control: an insert that records is seen"
        assert watcher.execute(place).fetchone()[1] == before[1] + 1, "and takes one transaction id"


@pytest.mark.core
def test_a_taken_name_assigns_no_transaction_id_inside_a_block(quiet, quiet_db):
    with quiet.connect(dbname=quiet_db) as conn:
        insert(conn, "run", "step", b"data")
        conn.execute("BEGIN")
        allow_block(conn)
        assert not insert(conn, "run", "step", b"other").inserted
        conn.execute("SELECT seq FROM bide.load('run')")
        assert conn.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
        assert insert(conn, "run", "next", b"").seq == 1
        assert conn.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() != (None,), "control"
        conn.execute("COMMIT")
