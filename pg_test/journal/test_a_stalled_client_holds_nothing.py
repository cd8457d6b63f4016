# Promise 3: a stalled client holds nothing.  C-48, C-49, C-59, C-108, C-113, C-114, C-115, C-127.
# Method: a client sends its call and then reads nothing, with a reply far larger than the socket takes
# (the server's backend is shown to wait for the client); another session goes on in the same run. Reads
# are pages: between them, and while a page is being handled, nothing is held, and writing is allowed.
# Control: in an allowed block the same stalled client does hold the run (so the check can tell).

import pytest
from psycopg.pq import ExecStatus

from calls import allow_block, assert_gap_free, insert, insert_many, load, load_all, runs
from racing import Background
from waits import pid_of, run_locks, wait_for_run_lock, wait_until

LARGE = 16 << 20  # a Unix socket's buffers hold a few hundred kB


def send(conn, sql: bytes, *args: bytes):
    """Sends the statement and leaves the reply unread."""
    conn.pgconn.send_query_params(sql, list(args))
    conn.pgconn.flush()


def wait_until_the_reply_is_stuck(watcher, pid):
    wait_until(
        lambda: watcher.execute(
            "SELECT wait_event FROM pg_stat_activity WHERE pid = %s AND wait_event = 'ClientWrite'", (pid,)
        ).fetchone(),
        what="the backend to wait for its client",
    )


def finish(conn):
    """The stalled client goes on: its call must have succeeded."""
    while (result := conn.pgconn.get_result()) is not None:
        assert result.status == ExecStatus.TUPLES_OK, result.error_message
        rows = result.ntuples
    return rows


INSERT = b"SELECT seq, inserted, stored FROM bide.insert($1, 'large', 'mine')"


@pytest.mark.core
def test_stalled_in_the_reply_to_a_taken_name(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as stalled, path_db.connect() as other, path_db.connect() as watcher:
        insert(other, run, "large", bytes(LARGE))
        send(stalled, INSERT, run.encode())
        wait_until_the_reply_is_stuck(watcher, pid_of(stalled))
        assert run_locks(watcher) == []
        assert insert(other, run, "second").seq == 1
        assert finish(stalled) == 1


@pytest.mark.core
def test_stalled_in_the_reply_to_a_name_taken_while_it_queued(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as stalled, path_db.connect() as other, path_db.connect() as watcher:
        other.execute("BEGIN")
        allow_block(other)
        insert(other, run, "large", bytes(LARGE))
        send(stalled, INSERT, run.encode())
        wait_for_run_lock(watcher, pid_of(stalled), by=pid_of(other))
        other.execute("COMMIT")
        wait_until_the_reply_is_stuck(watcher, pid_of(stalled))
        assert run_locks(watcher) == []
        other.execute("SET statement_timeout = '20s'")
        assert insert(other, run, "second").seq == 1
        assert finish(stalled) == 1


def test_stalled_in_a_large_page(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as stalled, path_db.connect() as other, path_db.connect() as watcher:
        insert(other, run, "large", bytes(LARGE))
        send(stalled, b"SELECT * FROM bide.load($1)", run.encode())
        wait_until_the_reply_is_stuck(watcher, pid_of(stalled))
        assert run_locks(watcher) == []
        other.execute("SET statement_timeout = '20s'")
        assert insert(other, run, "second").seq == 1
        assert finish(stalled) == 1, "the statement's own snapshot: one step"


def test_a_client_stalled_after_its_call_holds_nothing(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as stalled, path_db.connect() as other, path_db.connect() as watcher:
        send(stalled, b"SELECT seq FROM bide.insert($1, 'first', 'first')", run.encode())
        wait_until(lambda: load_all(watcher, run), what="the step of the stalled client")
        wait_until(lambda: run_locks(watcher) == [], what="its lock to go")
        assert insert(other, run, "second").seq == 1
        assert insert(other, run, "first", b"other") == (0, False, b"first")
        assert finish(stalled) == 1


def test_control_in_an_allowed_block_it_holds_the_run(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as stalled, path_db.connect() as other, path_db.connect() as watcher:
        stalled.execute("BEGIN")
        allow_block(stalled)
        insert(stalled, run, "first")
        waiting = Background(lambda: insert(other, run, "second"))
        wait_for_run_lock(watcher, pid_of(other), by=pid_of(stalled))
        stalled.execute("COMMIT")
        assert waiting.result().seq == 1


def test_writing_inside_the_loop_over_load(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        insert_many(conn, run, [f"step {n}" for n in range(300)], [b""] * 300)
        seen, after = [], -1
        while page := load(conn, run, after):
            assert run_locks(watcher) == []
            for step in page:
                seen.append(step.name)
                if step.name.startswith("step"):
                    insert(conn, run, f"from {step.name}")
            after = page[-1].seq
        assert seen[:300] == [f"step {n}" for n in range(300)]
        assert_gap_free(load_all(conn, run))
        assert len(load_all(conn, run)) == 600


def test_many_loops_are_broken_off_early(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn, path_db.connect() as watcher:
        insert_many(conn, run, [f"step {n}" for n in range(600)], [b""] * 600)
        for _ in range(50):
            assert len(load(conn, run)) == 256
        assert run_locks(watcher) == []
        assert insert(conn, run, "after").seq == 600
        assert len(load_all(conn, run)) == 601


def test_writing_inside_the_loop_over_runs(path_db, run):
    prefix = f"{run} {path_db.path}/"
    with path_db.connect() as conn:
        for number in range(120):
            insert(conn, f"{prefix}{number:04}", "a")
        seen, after = [], ""
        while page := runs(conn, after, prefix, max_rows=50):
            for number, found in enumerate(page):
                seen.append(found)
                insert(conn, found, "listed")
                if number % 10 == 0 and "new" not in found:
                    insert(conn, f"{prefix}new {found[len(prefix):]}", "a")
            after = page[-1]
        assert [r for r in seen if "new" not in r] == [f"{prefix}{number:04}" for number in range(120)]
        assert seen == sorted(seen, key=str.encode) and len(set(seen)) == len(seen)
