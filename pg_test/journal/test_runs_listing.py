# runs lists the ids that the filter admits, in byte order, each once, page by page.  C-9, C-52 to C-60, C-62.
# Method: 1,100 runs whose ids are awkward to sort and to match, in classes; each filter against what Python's own
# comparison of bytes says. Lease rows are made by hand.
# Control: the same ids sorted by the database's collation come in another order, and LIKE would match others.

import pytest

from calls import call, insert, insert_many
from waits import wait_until

ENDS = ["run:complete", "run:aborted", "run:cancelled"]
AWKWARD = ["%", "_", "a%b", "a_b", "a\\", "a\\b", "Z", "z", "é", "e", "ÿ", "\U0010ffff", "\U0010ffff\U0010ffff",
           "\ud7fb", "\ue000", "a>b", "a'b", 'a"b', " a", "a ", "~", "\x01", "\x7f"]


def listed(conn, **filters):
    """All pages of a listing, and their sizes."""
    after = filters.pop("after", "")
    arguments = ", ".join(f"{name} => %({name})s" for name in ("after", *filters))
    found, sizes = [], []
    while True:
        answer = conn.execute(f"SELECT run_id FROM bide.runs({arguments})", filters | {"after": after})
        page = [run_id for (run_id,) in answer.fetchall()]
        if not page:
            return found, sizes
        found += page
        sizes.append(len(page))
        after = page[-1]


def in_byte_order(ids):
    return sorted(ids, key=lambda name: name.encode())


@pytest.fixture
def ids(path_db, run):
    """1,100 runs under a prefix of their own; every third has ended, in three ways."""
    ids = [f"{run}/{name}" for name in AWKWARD] + [f"{run}/n{n}" for n in range(1100 - len(AWKWARD))]
    with path_db.connect() as conn:
        if not call(conn, "SELECT run_id FROM bide.runs(prefix => %s, max_rows => 1)", f"{run}/"):
            for n, name in enumerate(ids):
                ended = [ENDS[n // 3 % 3]] if n % 3 == 0 else []
                insert_many(conn, name, ["model:0", "tool:0", *ended], [b""] * (2 + len(ended)))
    return ids


@pytest.fixture
def conn(path_db):
    with path_db.connect() as opened:
        yield opened


@pytest.mark.core
def test_byte_order_prefix_and_cursor(conn, run, ids):
    ordered = in_byte_order(ids)
    found, sizes = listed(conn, prefix=f"{run}/")
    assert found == ordered and sizes == [500, 500, 100]
    assert listed(conn, prefix=f"{run}/", after=ordered[599])[0] == ordered[600:]
    assert listed(conn, prefix=f"{run}/", after=ordered[-1])[0] == []
    for prefix in [*AWKWARD, "a", "n1", "n10", "unused"]:
        expected = [name for name in ordered if name.startswith(f"{run}/{prefix}")]
        assert listed(conn, prefix=f"{run}/{prefix}")[0] == expected, prefix
    assert listed(conn, prefix=f"{run}/n", after=f"{run}/n5", max_rows=7)[0] == [
        name for name in ordered if name.startswith(f"{run}/n") and name > f"{run}/n5"
    ]


@pytest.mark.core
def test_runs_that_hold_an_entry_are_left_out(conn, run, ids):
    ordered = in_byte_order(ids)
    unfinished = [name for name in ordered if ids.index(name) % 3]
    assert listed(conn, prefix=f"{run}/", exclude_holding=ENDS)[0] == unfinished
    assert listed(conn, prefix=f"{run}/", exclude_holding=[*ENDS, "held by none"], max_rows=1000)[1] == [
        len(unfinished)
    ]
    assert listed(conn, prefix=f"{run}/", exclude_holding=["model:0"])[0] == []
    assert listed(conn, prefix=f"{run}/", exclude_holding=[])[0] == ordered


@pytest.mark.core
def test_a_run_exists_while_it_has_steps(conn, run):
    name = f"{run}/only"
    assert listed(conn, prefix=name)[0] == []
    insert(conn, name, "a")
    assert listed(conn, prefix=name)[0] == [name]
    conn.execute("SELECT bide.purge_run(%s, true)", [name])
    assert listed(conn, prefix=name)[0] == []


@pytest.mark.core
def test_runs_may_come_and_grow_between_pages(conn, run, path_db):
    names = [f"{run}/{n:03}" for n in range(100)]
    for name in names:
        insert(conn, name, "a")
    seen, after = [], ""
    with path_db.connect() as other:
        while page := call(conn, "SELECT run_id FROM bide.runs(%s, %s, max_rows => 9)", after, f"{run}/"):
            for row in page:
                seen.append(row.run_id)
                if row.run_id in names:
                    insert(other, row.run_id, "again")
                    insert(other, f"{row.run_id}/sub", "a")
            after = page[-1].run_id
    assert [name for name in seen if name in names] == names
    assert seen == in_byte_order(set(seen))


@pytest.mark.core
def test_lapsed_and_due_leases(conn, run):
    """Rows by hand, as no call writes leases yet. C-56; due and held by nobody is admitted on purpose."""
    classes = {
        "live": ("w", "now() + '1 hour'", True),
        "lapsed": ("w", "now() - interval '1 second'", True),
        "due": ("", "now() - interval '1 second'", True),
        "sleeping": ("", "now() + '1 hour'", True),
        "parked": ("", "'infinity'", True),
        "started": ("", "'-infinity'", True),
        "orphan": ("w", "now() - interval '1 second'", False),
    }
    for name, (holder, when, steps) in classes.items():
        conn.execute(
            f"INSERT INTO bide.leases (run_id, holder, expiry, fence, attempt, queue) VALUES (%s, %s, {when}, 1, 0, '')",
            [f"{run}/{name}", holder],
        )
        if steps:
            insert(conn, f"{run}/{name}", "a")
    insert(conn, f"{run}/never leased", "a")
    insert_many(conn, f"{run}/ended", ["a", "run:complete"], [b"", b""])
    expected = in_byte_order(f"{run}/{name}" for name in ("lapsed", "due", "started"))
    assert listed(conn, prefix=f"{run}/", lease_lapsed=True)[0] == expected
    assert listed(conn, prefix=f"{run}/", lease_lapsed=True, max_rows=1)[1] == [1, 1, 1]
    insert(conn, f"{run}/due", "run:aborted")
    assert listed(conn, prefix=f"{run}/", lease_lapsed=True, exclude_holding=ENDS)[0] == [
        name for name in expected if not name.endswith("/due")
    ]
    conn.execute("UPDATE bide.leases SET expiry = now() + '1 hour' WHERE run_id = %s", [f"{run}/lapsed"])
    assert f"{run}/lapsed" not in listed(conn, prefix=f"{run}/", lease_lapsed=True)[0]


@pytest.mark.core
def test_a_lease_lapses_by_the_servers_clock(conn, run):
    insert(conn, run, "a")
    conn.execute("INSERT INTO bide.leases VALUES (%s, 'w', clock_timestamp() + '300 ms', 1, 0, 'default')", [run])
    listing = lambda: listed(conn, prefix=run, lease_lapsed=True)[0]  # noqa: E731
    assert listing() == []
    assert wait_until(listing, 10, "the lease lapses") == [run]


@pytest.mark.core
def test_control_other_orders_and_matches_differ(conn, run, ids):
    by_like = call(conn, "SELECT count(*) AS n FROM bide.steps WHERE run_id LIKE %s AND seq = 0", f"{run}/a_b%")[0].n
    assert by_like > len(listed(conn, prefix=f"{run}/a_b")[0])
    folded = sorted(ids, key=str.casefold)
    assert folded != in_byte_order(ids)
