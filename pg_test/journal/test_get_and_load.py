# get finds a step by its name, load gives a run in order, page by page.  C-39, C-43 to C-51, C-23; design.md 4.
# Method: one run of 600 steps and one of large payloads, read in pages of every kind on both paths, with writes
# between pages.
# Control: a page asked for behind the last position is empty, one behind the one before it is not.

import pytest

from calls import assert_gap_free, call, get, insert, insert_many, load, load_all

MIB = 1 << 20


@pytest.fixture
def conn(path_db):
    with path_db.connect() as opened:
        yield opened


@pytest.mark.core
def test_get(conn, run):
    assert get(conn, run, "a") is None  # neither run nor name
    insert(conn, run, "a", b"A")
    step = get(conn, run, "a")
    assert (step.seq, step.data) == (0, b"A") and step.recorded_at is not None
    assert get(conn, run, "b") is None
    assert get(conn, f"{run} ", "a") is None and get(conn, run, "A") is None


@pytest.mark.core
def test_recorded_at_is_the_clock_after_the_lock(conn, run):
    before = call(conn, "SELECT clock_timestamp() AS at")[0].at
    insert(conn, run, "a")
    insert_many(conn, run, ["b", "c"], [b"", b""])
    after = call(conn, "SELECT clock_timestamp() AS at")[0].at
    a, b, c = (step.recorded_at for step in load(conn, run))
    assert before <= a <= b == c <= after


@pytest.mark.core
def test_load_pages(conn, run):
    names = [f"n{n}" for n in range(600)]
    insert_many(conn, run, names, [name.encode() for name in names])
    assert [step.name for step in load(conn, run)] == names[:256]
    assert [step.seq for step in load(conn, run, after=9, max_rows=3)] == [10, 11, 12]
    assert [step.name for step in load(conn, run, max_rows=10000)] == names
    assert [step.name for step in load_all(conn, run)] == names
    assert [step.seq for step in load(conn, run, after=-(2**63))][:2] == [0, 1]
    assert [step.seq for step in load(conn, run, after=598)] == [599]
    assert load(conn, run, after=599) == [] and load(conn, run, after=2**63 - 1) == []
    assert load(conn, f"{run} unknown") == []


@pytest.mark.core
def test_a_page_ends_at_eight_megabytes_and_is_never_empty_before_the_end(conn, run):
    sizes = [3 * MIB, 3 * MIB, 3 * MIB, 20 * MIB, 1, 1, 8 * MIB, 1]
    for n, size in enumerate(sizes):
        insert(conn, run, f"n{n}", bytes([n]) * size)
    pages, after = [], -1
    while page := load(conn, run, after):
        pages.append([step.seq for step in page])
        after = page[-1].seq
        assert all(step.data == bytes([step.seq]) * sizes[step.seq] for step in page)
    assert pages == [[0, 1], [2], [3], [4, 5], [6], [7]]


@pytest.mark.core
def test_nothing_is_held_between_pages_and_the_run_may_grow(conn, run, path_db):
    insert_many(conn, run, [f"n{n}" for n in range(300)], [b""] * 300)
    seen, after = [], -1
    with path_db.connect() as other:
        while page := load(conn, run, after, 50):
            for step in page:
                seen.append(step)
                if step.seq % 100 == 0 and step.seq < 300:
                    insert(other, run, f"extra{step.seq}")
            after = page[-1].seq
    assert_gap_free(seen)
    assert [step.name for step in seen[:300]] == [f"n{n}" for n in range(300)] and len(seen) == 303


@pytest.mark.core
def test_reads_assign_no_transaction_id(conn, run):
    insert(conn, run, "a")
    conn.execute("BEGIN")
    get(conn, run, "a"), load(conn, run), call(conn, "SELECT run_id FROM bide.runs(prefix => %s)", run)
    assert call(conn, "SELECT pg_current_xact_id_if_assigned() AS xid")[0].xid is None
    conn.execute("COMMIT")


@pytest.mark.core
def test_a_read_sees_what_its_statement_sees(conn, run, path_db):
    """At repeatable read the snapshot is the transaction's: a later step is not in it, inserts all the same are."""
    insert(conn, run, "a")
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL bide.transaction_block = allow")
    assert len(load(conn, run)) == 1
    with path_db.connect() as other:
        insert(other, run, "b", b"B")
    assert len(load(conn, run)) == 1 and get(conn, run, "b") is None
    if path_db.path == "direct":
        assert insert(conn, run, "b", b"mine") == (1, False, b"B")
        assert insert(conn, run, "c") == (2, True, None)
        assert [step.name for step in load(conn, run)] == ["a", "c"]
    conn.execute("COMMIT")
    assert load(conn, run)[1].data == b"B"
