# Any byte string is a legal payload and comes back as it was: in get, in load, and to the loser of a name.
# C-31, C-32, C-34, C-36, C-38.
# Method: all byte values alone and together, no byte at all, invalid UTF-8 with NUL, JSON in odd forms, random
# data of sizes around the steps of Postgres's storage; each through insert and insert_many, on both paths.
# Control: the same bytes are no legal text; what is compared is the table's own bytes too, not only our answer.

import psycopg
import pytest

from calls import get, insert, insert_many, load_all

PAYLOADS = {
    "no byte": b"",
    "a zero byte": b"\x00",
    "all values": bytes(range(256)),
    "all values backwards": bytes(range(255, -1, -1)),
    "invalid UTF-8 with NUL": b"\xff\xfe\x00\xc0\xaf\xed\xa0\x80 text \x00",
    "looks like hex": b"\\xdeadbeef",
    "looks like escapes": b"\\000\\\\'",
    "JSON with odd forms": '{ "b":1, "a":"\\u0000<>&\\u2028", "b":1.0e+400, "c":"\u2028\u2029" }'.encode(),
    "looks like a null": b"\\N",
}
SIZES = (1, 126, 127, 128, 1995, 2000, 2031, 2048, 8000, 8192, 65_536, 1_048_576)


@pytest.fixture(params=["insert", "insert_many"])
def record(request):
    if request.param == "insert":
        return lambda conn, run, name, data: insert(conn, run, name, data).seq
    return lambda conn, run, name, data: insert_many(conn, run, [name], [data])[0].seq


def comes_back(conn, run, name, data, seq):
    assert bytes(get(conn, run, name).data) == data
    assert insert(conn, run, name, b"another") == (seq, False, data)
    table = conn.execute(
        "SELECT data, octet_length(data) FROM bide.steps WHERE run_id = %s AND name = %s", (run, name)
    )
    assert table.fetchone() == (data, len(data))


@pytest.mark.core
def test_each_kind_comes_back(path_db, run, record, request):
    run = f"{run} {request.node.callspec.id}"
    with path_db.connect() as conn:
        for seq, (name, data) in enumerate(PAYLOADS.items()):
            assert record(conn, run, name, data) == seq
            comes_back(conn, run, name, data, seq)
        assert [step.data for step in load_all(conn, run)] == list(PAYLOADS.values())


@pytest.mark.core
def test_each_byte_value_comes_back(path_db, run):
    run = f"{run} {path_db.path}"
    with path_db.connect() as conn:
        insert_many(conn, run, [f"byte {b}" for b in range(256)], [bytes([b]) for b in range(256)])
        assert [step.data for step in load_all(conn, run)] == [bytes([b]) for b in range(256)]


def test_random_bytes_of_every_size_come_back(path_db, run, record, rng, request):
    """Inline, compressed, out of line: random bytes do not compress, repeated ones do."""
    run = f"{run} {request.node.callspec.id}"
    with path_db.connect() as conn:
        for size in SIZES:
            for kind, data in (("random", rng.randbytes(size)), ("repeated", bytes([size % 256]) * size)):
                name = f"{kind} {size}"
                comes_back(conn, run, name, data, record(conn, run, name, data))
        assert len(load_all(conn, run)) == 2 * len(SIZES)


def test_a_page_ends_early_at_8_megabytes_and_nothing_is_lost(path_db, run, rng):
    run = f"{run} {path_db.path}"
    sent = [rng.randbytes(3_000_000) for _ in range(5)]
    with path_db.connect() as conn:
        for n, data in enumerate(sent):
            insert(conn, run, f"step {n}", data)
        first = conn.execute("SELECT seq FROM bide.load(%s)", (run,)).fetchall()
        assert 1 <= len(first) < len(sent)
        assert [step.data for step in load_all(conn, run)] == sent


def test_control_they_are_no_text(conn, run):
    for name in ("invalid UTF-8 with NUL", "all values"):
        with pytest.raises(psycopg.Error) as refused:
            conn.execute("SELECT convert_from(%s, 'UTF8')", (PAYLOADS[name],))
        assert refused.value.sqlstate == "22021"
