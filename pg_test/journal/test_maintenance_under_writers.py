# Maintenance and ALTER under load: 16 writers go on, or are refused with a reason; no step is lost.
# C-16, C-22, C-26, C-172, C-173, C-177.
# Method: 16 writers on 4 runs; meanwhile each command, several times. Every acknowledged step is there at
# its position, no gap, no name twice, amcheck clean. Errors are counted by SQLSTATE and must be expected.
# Control: that writers were writing while the command ran is counted.

from __future__ import annotations

import threading
from collections import Counter

import psycopg
import pytest

from calls import assert_gap_free, insert, load_all
from racing import Background, failures, race
from waits import wait_until

WRITERS, RUNS = 16, 4

COMMANDS = {
    "reindex_concurrently": ["REINDEX TABLE CONCURRENTLY bide.steps"],
    "reindex": ["REINDEX TABLE bide.steps"],
    "vacuum_full": ["VACUUM (FULL, ANALYZE) bide.steps"],
    "vacuum_freeze": ["VACUUM (FREEZE) bide.steps"],
    "cluster": ["CLUSTER bide.steps USING {primary_key}"],
    "index_concurrently": [
        "CREATE INDEX CONCURRENTLY extra ON bide.steps (lower(name)) WHERE seq % 3 = 0",
        "DROP INDEX CONCURRENTLY bide.extra",
    ],
    "add_and_drop_column": [
        "ALTER TABLE bide.steps ADD note text DEFAULT 'usual'",
        "ALTER TABLE bide.steps DROP note",
    ],
    "add_and_drop_check": [
        "ALTER TABLE bide.steps ADD CONSTRAINT never CHECK (seq >= 0)",
        "ALTER TABLE bide.steps DROP CONSTRAINT never",
    ],
    "add_and_drop_trigger": [
        "CREATE TRIGGER pass BEFORE INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.pass()",
        "DROP TRIGGER pass ON bide.steps",
    ],
    "row_security_on_and_off": [
        "ALTER TABLE bide.steps ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE bide.steps DISABLE ROW LEVEL SECURITY",
    ],
    "replace_the_key_index": [
        "CREATE UNIQUE INDEX CONCURRENTLY replacement ON bide.steps (run_id, seq)",
        "ALTER TABLE bide.steps DROP CONSTRAINT {seq_key},"
        " ADD CONSTRAINT {seq_key} UNIQUE USING INDEX replacement",
    ],
    "rename_table": [
        "ALTER TABLE bide.steps RENAME TO entries",
        "ALTER TABLE bide.entries RENAME TO steps",
    ],
    "persistence": ["ALTER TABLE bide.steps SET UNLOGGED", "ALTER TABLE bide.steps SET LOGGED"],
    "drop_and_add_the_key": [
        "ALTER TABLE bide.steps DROP CONSTRAINT {seq_key}",
        "ALTER TABLE bide.steps ADD CONSTRAINT {seq_key} UNIQUE (run_id, seq)",
    ],
}
# While it is so, nobody can write, and each is told why.
REFUSED_MEANWHILE = {"persistence": {"55000"}, "drop_and_add_the_key": {"55000"}}


class Writers:
    """16 writers that go on after errors, and remember what they were told."""

    def __init__(self, db, run):
        self.db, self.run = db, run
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.errors: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self._stop = threading.Event()

    def _writer(self, who):
        with self.db.connect() as conn:
            n = 0
            while not self._stop.is_set():
                target, name = f"{self.run}/{(who + n) % RUNS}", f"{who}/{n}"
                try:
                    row = insert(conn, target, name, name.encode())
                    assert row.inserted
                    self.acknowledged[target, name] = row.seq
                    n += 1
                except psycopg.Error as error:
                    self.errors[error.sqlstate] += 1
                    self.messages.setdefault(error.sqlstate, str(error))
                    if error.sqlstate is None:
                        raise

    def __enter__(self):
        self._running = Background(lambda: race([lambda w=w: self._writer(w) for w in range(WRITERS)]))
        return self

    def progress(self, more=50):
        goal = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= goal, 60, f"{goal} acknowledged steps ({self.errors})")

    def __exit__(self, kind, *_):
        self._stop.set()
        results = self._running.result(120)
        if kind is None:
            assert failures(results) == []
        return False

    def check(self):
        with self.db.connect() as conn:
            stored = {}
            for number in range(RUNS):
                steps = load_all(conn, f"{self.run}/{number}")
                assert_gap_free(steps)
                stored |= {(f"{self.run}/{number}", step.name): step.seq for step in steps}
        assert stored == self.acknowledged
        self.db.amcheck("bide.steps")


def command_texts(db, which):
    def name(kind, column):
        return db.psql(
            "SELECT conname FROM pg_constraint c WHERE conrelid = 'bide.steps'::regclass AND contype = "
            f"'{kind}' AND '{column}' IN (SELECT attname FROM pg_attribute WHERE attrelid = conrelid"
            " AND attnum = ANY (conkey))"
        )

    names = {"primary_key": name("p", "name"), "seq_key": name("u", "seq")}
    return [command.format(**names) for command in COMMANDS[which]]


def under_writers(db, run, which, times):
    db.psql("CREATE FUNCTION public.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$")
    commands = command_texts(db, which)
    deadlocks = 0
    with db.connect() as maintenance, Writers(db, run) as writers:
        writers.progress()
        for _ in range(times):
            for command in commands:
                while True:
                    try:
                        maintenance.execute(command)
                        break
                    except psycopg.errors.DeadlockDetected:
                        deadlocks += 1
                        assert deadlocks < 50
                if which not in REFUSED_MEANWHILE:
                    writers.progress()
            writers.progress()
    writers.check()
    print(f"{which}: {len(writers.acknowledged)} steps; errors {dict(writers.errors)}; {writers.messages};"
          f" the command itself was a deadlock's victim {deadlocks} times")  # fmt: skip
    assert set(writers.errors) <= REFUSED_MEANWHILE.get(which, set()), writers.messages


@pytest.mark.parametrize("which", COMMANDS)
def test_writers_go_on(db, run, which):
    under_writers(db, run, which, times=3)


@pytest.mark.core
def test_a_session_that_checks_the_tables_does_not_deadlock_with_reindex(db, run):
    """A first call locks the table for writing before it looks at the indexes, as a plain INSERT does:
    held up in between, it would hold an index that REINDEX waits for, while REINDEX holds the table."""
    with db.connect() as gate, db.connect() as conn, db.connect() as maintenance, db.connect() as watcher:
        # Holds an index of the leases, which a first call looks at after those of the steps.
        gate.execute("BEGIN; REINDEX TABLE bide.leases")
        first = Background(lambda: insert(conn, run, "first"))
        wait_until(
            lambda: first.done or gate.info.backend_pid in blockers(watcher, conn),
            what="the first call to be checking the tables",
        )
        reindex = Background(lambda: maintenance.execute("REINDEX TABLE bide.steps"))
        wait_until(lambda: reindex.done or blockers(watcher, maintenance), what="REINDEX to be under way")
        gate.execute("COMMIT")
        reindex.result()
        assert first.result().seq == 0
    db.amcheck("bide.steps")


def blockers(watcher, conn):
    return watcher.execute("SELECT pg_blocking_pids(%s)", (conn.info.backend_pid,)).fetchone()[0]


@pytest.mark.core
def test_writers_go_on_while_indexes_are_replaced(db, run):
    under_writers(db, run, "reindex_concurrently", times=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("which", COMMANDS)
def test_writers_go_on_for_long(db, run, which):
    under_writers(db, run, which, times=25)
