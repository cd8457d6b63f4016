# The harness: a cluster lives by itself, can be hurt, copied and promoted, and leaves nothing behind.
# Method: each method of Cluster once, on a plain server without the extension's functions.

import os

import psycopg
import pytest

from cluster import Cluster
from racing import Background, Until, race
from waits import pid_of, wait_blocked, wait_until


@pytest.fixture(scope="module")
def own():
    with Cluster("harness", durable=True) as made:
        yield made
        base = made.base
    assert not base.exists()


def test_listens_on_its_own_socket_only(own):
    with own.connect() as conn:
        assert conn.execute("SHOW listen_addresses").fetchone() == ("",)
        assert conn.execute("SHOW fsync").fetchone() == ("on",)
        assert conn.autocommit
    assert own.psql("SELECT 1 + 1") == "2"
    assert len(str(own.socket_dir)) < 100


def test_server_has_no_backtrace_setting(own):
    with open(f"/proc/{int((own.data / 'postmaster.pid').read_text().split()[0])}/environ", "rb") as file:
        assert b"RUST_BACKTRACE" not in file.read()


def test_settings_reach_the_session(own):
    with own.connect(settings={"default_transaction_isolation": "repeatable read"}) as conn:
        assert conn.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)


def test_blocked_is_seen_and_reported(own):
    with own.connect() as holder, own.connect() as waiter, own.connect() as watcher:
        holder.execute("SELECT pg_advisory_lock(7)")
        waiting = Background(lambda: waiter.execute("SELECT pg_advisory_lock(7)"))
        assert wait_blocked(watcher, pid_of(waiter), by=pid_of(holder)) == [pid_of(holder)]
        with pytest.raises(AssertionError, match="blocked by anyone.*idle"):
            wait_blocked(watcher, pid_of(holder), deadline_s=0.1)
        holder.execute("SELECT pg_advisory_unlock(7)")
        waiting.result()


def test_wait_until_prints_the_last_value():
    values = iter([0, 0])
    with pytest.raises(AssertionError, match=r"waited 0.05 s for a full list; last value: \[\]"):
        wait_until(lambda: next(values, []), 0.05, "a full list")


def test_a_killed_backend_is_a_crash(own):
    with own.connect() as conn:
        own.sigkill(pid_of(conn))
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    wait_until(lambda: _answers(own), what="the server to be back")
    with pytest.raises(RuntimeError, match="not a backend"):
        own.sigkill(os.getpid())


def test_restart_amcheck_and_log(own):
    own.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)")
    own.restart("immediate")
    own.amcheck("t")
    assert own.psql("SELECT count(*) FROM t") == "1000"
    assert "redo done" in own.log_text() or "database system was not properly shut down" in own.log_text()


def test_standby_follows_and_is_promoted(own):
    own.psql("CREATE TABLE IF NOT EXISTS on_standby (id int)")
    standby = own.basebackup().start()
    own.psql("INSERT INTO on_standby VALUES (1)")
    wait_until(lambda: standby.psql("SELECT count(*) FROM on_standby") == "1", what="the row on the standby")
    assert standby.psql("SELECT pg_is_in_recovery()") == "t"
    standby.promote()
    assert standby.psql("SELECT pg_is_in_recovery()") == "f"
    standby.remove()


def test_race_gives_errors_as_results_and_until_raises_them():
    assert race([lambda: 1, lambda: 2]) == [1, 2]
    boom = race([lambda: 1 / 0])[0]
    assert isinstance(boom, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        with Until(lambda: 1 / 0):
            wait_until(lambda: True)


def _answers(own) -> bool:
    try:
        return own.psql("SELECT 1") == "1"
    except RuntimeError:
        return False
