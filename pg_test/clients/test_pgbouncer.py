# Behind pgbouncer in transaction mode every call works: bide keeps no session state that a call relies on, and
# no lock outlives a statement.  C-108, C-116, C-151; design.md 1 (3).
# Method: a pgbouncer of our own with two server connections for all clients; unprepared calls, then prepared
# ones. pgbouncer follows protocol-level prepared statements from 1.21 on; an older one (Debian 12 has 1.18) does
# not, and what then works is shown: unprepared calls, prepared ones in session mode, and inside one transaction.
# Control: on such an old one two clients' prepared statements collide, with pgbouncer's servers' own error, and
# nothing is recorded; a session's advisory lock does stay behind on the server for the next client.

import psycopg
import pytest

from calls import allow_block, assert_gap_free, insert, load_all, sqlstate_of
from functions import FUNCTIONS, WRITING, fill, ids
from pooler import SERVERS, Pooler, keeps_prepared_statements
from racing import failures, race

CLIENTS = 8
STEPS = 25


@pytest.fixture(scope="module")
def transactions(cluster):
    with Pooler(cluster, "transaction") as made:
        yield made


@pytest.fixture(scope="module")
def single(cluster):
    """One server connection, so that clients certainly share it."""
    with Pooler(cluster, "transaction", servers=1) as made:
        yield made


@pytest.fixture
def pooled(transactions):
    with transactions.connect() as opened:
        yield opened


@pytest.mark.parametrize("function", FUNCTIONS, ids=ids(FUNCTIONS))
def test_every_function_unprepared(pooled, function):
    fill(pooled)
    function.call(pooled)
    assert pooled.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)


def test_many_clients_share_two_servers_on_one_run(transactions, conn, run):
    clients = [transactions.connect() for _ in range(CLIENTS)]
    try:

        def writer(client, who):
            pids = set()
            for n in range(STEPS):
                assert insert(client, run, f"{who}/{n}", b"data").inserted
                pids.add(client.execute("SELECT pg_backend_pid()").fetchone()[0])
            return pids

        results = race([lambda c=c, w=w: writer(c, w) for w, c in enumerate(clients)])
        assert failures(results) == []
        assert len(set().union(*results)) == SERVERS, "control: all clients shared two servers"
    finally:
        for client in clients:
            client.close()
    steps = load_all(conn, run)
    assert len(steps) == CLIENTS * STEPS
    assert_gap_free(steps)


@pytest.mark.parametrize("function", WRITING, ids=ids(WRITING))
def test_an_implicit_transaction_is_refused_here_too(transactions, function):
    with transactions.connect(autocommit=False) as client:
        with pytest.raises(psycopg.errors.ActiveSqlTransaction) as refused:
            function.call(client)
        assert "SET LOCAL" in refused.value.diag.message_hint
        client.rollback()


def test_a_client_that_leaves_mid_transaction_leaves_no_lock(transactions, conn, run):
    gone = transactions.connect(autocommit=False)
    allow_block(gone)
    insert(gone, run, "never committed")
    gone.close()  # without COMMIT: the pooler closes the server connection
    assert insert(conn, run, "step").seq == 0


def test_set_local_reaches_its_own_transaction_only(single, run):
    with single.connect() as one, single.connect() as two:
        one.execute("BEGIN")
        allow_block(one)
        assert insert(one, run, "in a block").seq == 0
        one.execute("COMMIT")
        two.execute("BEGIN")
        assert sqlstate_of(insert, two, run, "refused") == "25001"
        two.execute("ROLLBACK")


def test_prepared_statements_inside_one_transaction(transactions, run):
    """Any pgbouncer: a transaction stays on its server, so PREPARE and EXECUTE meet."""
    with transactions.connect() as client:
        client.execute("BEGIN")
        allow_block(client)
        client.execute("PREPARE record (text, text, bytea) AS SELECT seq FROM bide.insert($1, $2, $3)")
        assert [client.execute(f"EXECUTE record('{run}', 'step {n}', '')").fetchone()[0] for n in range(3)] == [
            0,
            1,
            2,
        ]
        client.execute("DEALLOCATE record")
        client.execute("COMMIT")


def test_prepared_statements_in_session_mode(cluster, run):
    with Pooler(cluster, "session") as sessions, sessions.connect(prepare_threshold=0) as client:
        for n in range(10):
            assert insert(client, run, f"step {n}", b"data").seq == n
        prepared = client.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%bide.insert%'")
        assert prepared.fetchone()[0] == 2, "control: it was prepared, and so was this question"


def test_prepared_statements_in_transaction_mode(single, conn, run):
    with single.connect(prepare_threshold=0) as one, single.connect(prepare_threshold=0) as two:
        assert insert(one, run, "first", b"data").seq == 0
        if keeps_prepared_statements():
            for n in range(1, 10):
                assert insert(two if n % 2 else one, run, f"step {n}", b"data").seq == n
            return
        # Both clients call their first statement the same, and they share the server.
        state = sqlstate_of(insert, two, run, "second", b"data")
        assert state in ("42P05", "26000"), f"this pgbouncer was to collide, and said {state}"
        assert [step.name for step in load_all(conn, run)] == ["first"], "nothing was recorded"
    with single.connect() as unprepared:
        assert insert(unprepared, run, "second", b"data").seq == 1


def test_control_a_session_lock_stays_behind_and_ours_does_not(single, run):
    with single.connect() as client:
        insert(client, run, "step")
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        assert client.execute(held).fetchone() == (0,)
        client.execute("SELECT pg_advisory_lock(1)")
    with single.connect() as client:
        assert client.execute(held).fetchone() == (1,)
        client.execute("SELECT pg_advisory_unlock_all()")
