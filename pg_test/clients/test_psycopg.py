# psycopg 3 calls every function with ordinary Python values. Its default, a transaction that opens by itself,
# is refused with the hint; nothing is recorded.  C-31, C-116; design.md 4 (transaction block).
# Method: str, bytes, lists, int, bool, datetime and Json as parameters, in psycopg's modes: text and binary
# results, server-side prepared statements, pipelines; then the default connection.
# Control: the string that survives insert_json loses its backslashes when it is sent as text for a bytea.

import datetime
import json

import psycopg
import pytest
from psycopg.types.json import Json, Jsonb

from calls import insert, load_all
from functions import AWKWARD, FUNCTIONS, WRITING, fill, ids


@pytest.fixture(params=["text", "binary", "prepared"])
def client(cluster, request):
    """An autocommit connection in one of psycopg's modes."""
    options = {"prepare_threshold": 0} if request.param == "prepared" else {}
    with cluster.connect(**options) as conn:
        if request.param == "binary":
            conn.cursor_factory = BinaryCursor
        yield conn


class BinaryCursor(psycopg.Cursor):
    def execute(self, *args, **kw):
        return super().execute(*args, **{**kw, "binary": True})


@pytest.mark.core
def test_every_function_with_ordinary_parameters(client, run):
    def one(sql, *args):
        return client.execute(sql, args).fetchone()

    def all_of(sql, *args):
        return client.execute(sql, args).fetchall()

    run = f"{run} {client.prepare_threshold} {client.cursor_factory.__name__}"
    insert = "SELECT seq, inserted, stored FROM bide.insert(%s, %s, %s)"
    assert one(insert, run, "bytes", b"\x00\xff\\") == (0, True, None)
    assert one(insert, run, "bytes", b"other") == (0, False, b"\x00\xff\\")
    assert one(insert, run, "no bytes", b"") == (1, True, None)
    named = (
        "SELECT seq, inserted FROM bide.insert(run_id => %s, name => %s, data => %s, fence => %s, publish => %s,"
        " wake => %s, store => %s)"
    )
    assert one(named, run, "named", bytearray(b"b"), 0, "", False, "bide") == (2, True)

    insert_json = "SELECT seq, inserted, stored FROM bide.insert_json(%s, %s, %s)"
    assert one(insert_json, run, "json", Json({"a": [1, None]})) == (3, True, None)
    assert one(insert_json, run, "json", Json({})) == (3, False, {"a": [1, None]})
    assert one(insert_json, run, "json text", '{"b":  2}') == (4, True, None)
    assert one("SELECT data FROM bide.get(%s, %s)", run, "json text") == (b'{"b":  2}',)

    insert_many = "SELECT name, seq, inserted FROM bide.insert_many(%s, %s, %s)"
    assert all_of(insert_many, run, ["m1", "json", "m2"], [b"1", b"", b"\x00"]) == [
        ("m1", 5, True),
        ("json", 3, False),
        ("m2", 6, True),
    ]
    seq, data, recorded_at = one("SELECT seq, data, recorded_at FROM bide.get(%s, %s)", run, "m2")
    assert (seq, data) == (6, b"\x00") and isinstance(recorded_at, datetime.datetime) and recorded_at.tzinfo
    assert one("SELECT seq FROM bide.get(%s, %s)", run, "absent") is None
    page = all_of("SELECT seq, name, data FROM bide.load(%s, %s, %s)", run, 4, 2)
    assert page == [(5, "m1", b"1"), (6, "m2", b"\x00")]
    listed = all_of("SELECT run_id FROM bide.runs(%s, %s, %s, %s, %s)", "", run, ["m1"], False, 10)
    assert listed == [] and (run,) in all_of("SELECT run_id FROM bide.runs(prefix => %s)", run)
    assert one("SELECT bide.next_seq(%s)", run) == (7,)

    assert one("SELECT bide.schema_version()") == (1,)
    assert one("SELECT FROM bide.check_schema(%s)", 1) == ()
    assert one("SELECT bide.version()")[0]
    cbor = one("SELECT bide.to_cbor(%s)", Jsonb({"a": 1}))[0]
    assert one("SELECT bide.from_cbor(%s)", cbor) == ({"a": 1},)
    assert one("SELECT FROM bide.grant_access(%s, %s)", "pg_monitor", "reader") == ()
    assert one("SELECT FROM bide.purge_run(%s, %s)", run, True) == ()
    assert load_all(client, run) == []
    long_ago = datetime.datetime(1999, 1, 1, tzinfo=datetime.timezone.utc)
    assert one("SELECT bide.purge_finished(%s, %s)", long_ago, 10) == (0,)


@pytest.mark.core
def test_a_string_survives_insert_json_byte_for_byte(client, run):
    run = f"{run} {client.prepare_threshold} {client.cursor_factory.__name__}"
    text = json.dumps({"key": AWKWARD}, ensure_ascii=False)
    insert_json = "SELECT inserted, stored FROM bide.insert_json(%s, %s, %s)"
    assert client.execute(insert_json, (run, "step", text)).fetchone() == (True, None)
    assert client.execute("SELECT data FROM bide.get(%s, 'step')", (run,)).fetchone() == (text.encode(),)
    assert client.execute(insert_json, (run, "step", "null")).fetchone() == (False, {"key": AWKWARD})
    # The document itself, not only what is in it: white space, key order, repeated keys, escapes.
    text = '{ "b":1.50,\n"a" : "\\u00e9\\/", "b": 1e400 }'
    client.execute(insert_json, (run, "form", text))
    assert client.execute("SELECT data FROM bide.get(%s, 'form')", (run,)).fetchone() == (text.encode(),)


def test_control_text_sent_for_bytea_loses_its_backslashes(conn, run):
    sent = "a\\\\b"
    conn.execute("SELECT seq FROM bide.insert(%s, 'step', %s)", (run, sent))
    assert conn.execute("SELECT data FROM bide.get(%s, 'step')", (run,)).fetchone() == (b"a\\b",)


@pytest.mark.core
@pytest.mark.parametrize("function", WRITING, ids=ids(WRITING))
def test_the_default_connection_is_refused_with_the_hint(make_db, function):
    db = make_db()
    with db.connect() as owner:
        fill(owner)
        before = load_all(owner, "a run")
    with db.connect(autocommit=False) as client:
        with pytest.raises(psycopg.errors.ActiveSqlTransaction) as refused:
            function.call(client)
        diag = refused.value.diag
        assert refused.value.sqlstate == "25001" and f"bide.{function.name}" in diag.message_primary
        assert "not recorded until COMMIT" in diag.message_detail or "recorded until COMMIT" in diag.message_detail
        assert "autocommit" in diag.message_hint and "SET LOCAL bide.transaction_block = allow" in diag.message_hint
        client.rollback()
    with db.connect() as owner:
        assert load_all(owner, "a run") == before and load_all(owner, "a finished run")


@pytest.mark.core
def test_the_default_connection_works_where_the_step_belongs_to_the_transaction(make_db):
    db = make_db()
    with db.connect(autocommit=False) as client, db.connect() as watcher:
        client.execute("SET LOCAL bide.transaction_block = allow")
        assert insert(client, "run", "step", b"data").seq == 0
        assert load_all(watcher, "run") == []
        client.commit()
        assert [step.name for step in load_all(watcher, "run")] == ["step"]
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):  # LOCAL: it ended with its transaction
            insert(client, "run", "next")
        client.rollback()


def test_reads_work_on_the_default_connection(cluster):
    with cluster.connect(autocommit=False) as client:
        for function in FUNCTIONS:
            if function.access == "reader":
                function.call(client)
        client.rollback()


def test_a_pipeline_of_inserts(cluster, run):
    """Statements of a pipeline are no transaction block; those before a sync commit together."""
    with cluster.connect() as client:
        with client.pipeline():
            cursors = [
                client.execute("SELECT seq FROM bide.insert(%s, %s, %s)", (run, f"step {n}", b"data"))
                for n in range(50)
            ]
            assert [cursor.fetchone()[0] for cursor in cursors] == list(range(50))
        assert len(load_all(client, run)) == 50


def test_numbers_of_every_size_reach_bigint(conn, run):
    """psycopg sends an int in the smallest type it fits."""
    insert(conn, run, "step", b"data")
    for after, found in ((-1, 1), (0, 0), (300, 0), (70_000, 0), (2**40, 0)):
        assert len(conn.execute("SELECT seq FROM bide.load(%s, %s)", (run, after)).fetchall()) == found
