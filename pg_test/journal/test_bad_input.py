# Bad input is a clear error and changes nothing: the SQLSTATE that the README promises, the argument or object in
# the message, the fact in the detail, the advice in the hint.
# C-35, C-36, C-37, C-116, C-142, C-251; design.md 4 (the table of SQLSTATEs), promise 10.
# Method: for every function and each of its arguments one bad value, all others good; then the rows of all tables,
# their physical places included, and the next position are as before.
# Control: the same call with nothing wrong succeeds (test_control_...), so it is the bad value that is refused.

import contextlib

import psycopg
import pytest

from calls import assert_gap_free, insert, load_all, sqlstate_of
from functions import BY_NAME, FUNCTIONS, STORE, WRITING, everything, fill, ids

ID_BYTES_MAX = 1000
PAGE_ROWS_MAX = 10_000
PURGE_RUNS_MAX = 1_000
MAX_DATA_DEFAULT = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def own_db(cluster):
    """A database where nobody else writes."""
    cluster.psql("CREATE DATABASE bad_input TEMPLATE template0")
    cluster.psql("CREATE EXTENSION bide", dbname="bad_input")
    with cluster.connect(dbname="bad_input") as owner:
        fill(owner)
    yield "bad_input"
    cluster.psql("DROP DATABASE bad_input WITH (FORCE)")


@pytest.fixture
def conn(cluster, own_db):
    with cluster.connect(dbname=own_db) as opened:
        yield opened


@pytest.fixture
def watcher(cluster, own_db):
    with cluster.connect(dbname=own_db) as opened:
        yield opened


@contextlib.contextmanager
def refused(watcher, sqlstate: str, *words: str, by_postgres: bool = False):
    """The block fails with `sqlstate`, each of `words` is said, and nothing is written."""
    before = everything(watcher)
    with pytest.raises(psycopg.Error) as caught:
        yield
    diag = caught.value.diag
    said = " ".join(filter(None, (diag.message_primary, diag.message_detail, diag.message_hint)))
    assert diag.sqlstate == sqlstate, said
    for word in words:
        assert word in said, f"{word!r} is not in: {said}"
    if not by_postgres:
        assert diag.message_detail and diag.message_hint, f"detail and hint are due: {said}"
        assert diag.message_detail.endswith(".") and diag.message_hint.endswith(".")
        assert not diag.message_primary.endswith(".") and "\n" not in diag.message_primary
    assert everything(watcher) == before
    assert insert(watcher, "next run", "probe").inserted
    watcher.execute("SELECT bide.purge_run('next run', true)")


def each_argument(functions=FUNCTIONS):
    return [pytest.param(f, name, id=f"{f.name}-{name}") for f in functions for name, _, _ in f.arguments]


# -- the control comes first --------------------------------------------------------------------


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if not f.name.startswith("purge")])
def test_control_the_ordinary_call_succeeds(conn, function):
    function.call(conn)
    if function.writes:
        conn.execute("SELECT bide.purge_run('a run', true)")
        fill(conn)


# -- NULL, empty, too long ------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("function, argument", each_argument())
def test_null(conn, watcher, function, argument):
    with refused(watcher, "22004", f'"{argument}"'):
        function.call(conn, function.values(**{argument: None}))


IDS = [
    pytest.param(f, name, id=f"{f.name}-{name}")
    for f in FUNCTIONS
    for name, _, _ in f.arguments
    if name in ("run_id", "name")
]


@pytest.mark.core
@pytest.mark.parametrize("function, argument", IDS)
def test_empty_id(conn, watcher, function, argument):
    with refused(watcher, "22023", f'"{argument}"', "0 bytes"):
        function.call(conn, function.values(**{argument: ""}))


@pytest.mark.core
@pytest.mark.parametrize(
    "value", ["x" * (ID_BYTES_MAX + 1), "€" * 334, "🚀" * 251], ids=["ascii", "three bytes", "four bytes"]
)
@pytest.mark.parametrize("function, argument", IDS)
def test_over_long_id(conn, watcher, function, argument, value):
    with refused(watcher, "22023", f'"{argument}"', str(len(value.encode())), str(ID_BYTES_MAX)):
        function.call(conn, function.values(**{argument: value}))


def test_the_longest_ids_work(conn, rng):
    """Incompressible ones, which an index row must hold as they are."""
    letters = [chr(c) for c in range(0x4E00, 0x9FA5)]
    run = "".join(rng.choices(letters, k=333)) + "x"
    names = ["".join(rng.choices(letters, k=333)) + "y" for _ in range(50)]
    assert len(run.encode()) == ID_BYTES_MAX
    assert [insert(conn, run, name, b"").seq for name in names] == list(range(50))
    assert run in [row[0] for row in conn.execute("SELECT run_id FROM bide.runs()").fetchall()]
    conn.execute("SELECT bide.purge_run(%s, true)", (run,))


@pytest.mark.parametrize("argument", ["after", "prefix"])
def test_over_long_filter_of_runs(conn, watcher, argument):
    with refused(watcher, "22023", f'"{argument}"', "1001", "1000"):
        BY_NAME["runs"].call(conn, {argument: "x" * 1001})


@pytest.mark.parametrize("names", [[""], ["ok", ""], ["x" * 1001]], ids=["empty", "second is empty", "long"])
def test_bad_names_of_a_batch(conn, watcher, names):
    with refused(watcher, "22023", '"names"'):
        BY_NAME["insert_many"].call(conn, {"run_id": "a run", "names": names, "data": [b""] * len(names)})
    with refused(watcher, "22023", '"exclude_holding"'):
        BY_NAME["runs"].call(conn, {"exclude_holding": names})


def test_what_is_no_text_for_the_server(conn, watcher):
    """Postgres's own errors pass unchanged."""
    with refused(watcher, "22021", by_postgres=True):
        conn.execute("SELECT seq FROM bide.insert(E'\\xff', 'step', '')")
    with refused(watcher, "22P02", by_postgres=True):
        conn.execute("SELECT seq FROM bide.insert_json('a run', 'step', '{')")
    with refused(watcher, "22023", by_postgres=True):
        conn.execute("SELECT seq FROM bide.insert('a run', 'step', '\\x0')")


# -- payloads -------------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("name", ["insert", "insert_json", "insert_many"])
def test_payload_over_the_cap(cluster, own_db, watcher, name):
    with cluster.connect(dbname=own_db, settings={"bide.max_data": "100"}) as conn:
        function = BY_NAME[name]
        too_large = {"insert": b"x" * 101, "insert_json": '"' + "x" * 99 + '"', "insert_many": [b"ok", b"x" * 101]}[
            name
        ]
        with refused(watcher, "54000", "101", "100", "bide.max_data"):
            function.call(conn, function.values(data=too_large))
        just_fits = {"insert": b"x" * 100, "insert_json": '"' + "x" * 98 + '"', "insert_many": [b"", b"x" * 100]}[
            name
        ]
        function.call(conn, function.values(run_id="fits", data=just_fits))
        conn.execute("SELECT bide.purge_run('fits', true)")


def test_the_default_cap_is_64_megabytes(conn, watcher):
    conn.execute("SELECT bide.version()")  # settings are known once the library is loaded
    assert conn.execute("SELECT setting::int, unit FROM pg_settings WHERE name = 'bide.max_data'").fetchone() == (
        MAX_DATA_DEFAULT,
        "B",
    )
    huge = "SELECT seq FROM bide.insert('huge', 'step', convert_to(repeat('x', %s), 'UTF8'))"
    with refused(watcher, "54000", str(MAX_DATA_DEFAULT), str(MAX_DATA_DEFAULT + 1)):
        conn.execute(huge, (MAX_DATA_DEFAULT + 1,))
    assert conn.execute(huge, (MAX_DATA_DEFAULT,)).fetchone() == (0,)
    conn.execute("SELECT bide.purge_run('huge', true)")


@pytest.mark.parametrize("setting", ["bide.max_data", "bide.max_run_locks"])
def test_only_a_superuser_raises_the_caps(cluster, own_db, watcher, setting):
    watcher.execute("CREATE ROLE not_super LOGIN")
    watcher.execute("SELECT FROM bide.grant_access('not_super', 'writer')")
    try:
        with cluster.connect(dbname=own_db, user="not_super") as conn:
            conn.execute("SELECT seq FROM bide.get('a run', 'zeroth')")  # the library is loaded
            assert sqlstate_of(conn.execute, f"SET {setting} = 1000000") == "42501"
        # Set before the library is there, it is forgotten when it comes.
        with cluster.connect(dbname=own_db, user="not_super", settings={setting: "7"}) as conn:
            conn.execute("SELECT seq FROM bide.get('a run', 'zeroth')")
            assert conn.execute(f"SHOW {setting}").fetchone()[0] not in ("7", "7B")
    finally:
        watcher.execute("DROP OWNED BY not_super")
        watcher.execute("DROP ROLE not_super")


def test_stored_bytes_that_are_not_json(conn, watcher):
    insert(conn, "a run", "bytes", b"\xff\x00")
    insert(conn, "a run", "half", b'{"a":')
    for name in ("bytes", "half"):
        with refused(watcher, "22P02", "bide.get", f'"{name}"'):
            conn.execute("SELECT seq FROM bide.insert_json('a run', %s, '1')", (name,))


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize(
    "name, argument, maximum",
    [
        ("load", "max_rows", PAGE_ROWS_MAX),
        ("runs", "max_rows", PAGE_ROWS_MAX),
        ("purge_finished", "max_runs", PURGE_RUNS_MAX),
    ],
)
def test_limits(conn, watcher, name, argument, maximum):
    function = BY_NAME[name]
    for bad in (0, -1, -(2**31), maximum + 1, 2**31 - 1):
        with refused(watcher, "22023", f'"{argument}"', str(bad), str(maximum)):
            function.call(conn, function.values(**{argument: bad}))
    for good in (1, maximum):
        function.call(conn, function.values(**{argument: good}))


def test_positions_beyond_the_ends_are_no_error(conn):
    fill(conn)
    for after, found in ((-(2**63), [0, 1]), (-2, [0, 1]), (-1, [0, 1]), (0, [1]), (1, []), (2**63 - 1, [])):
        rows = conn.execute("SELECT seq FROM bide.load('a finished run', %s)", (after,)).fetchall()
        assert [seq for (seq,) in rows] == found


# -- arrays ---------------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("names, data", [(["a", "b"], [b""]), (["a"], [b"", b""]), ([], [b""]), (["a"], [])])
def test_arrays_of_different_lengths(conn, watcher, names, data):
    with refused(watcher, "22023", '"names"', '"data"', f"{len(names)} element", f"{len(data)} element"):
        BY_NAME["insert_many"].call(conn, {"run_id": "a run", "names": names, "data": data})


@pytest.mark.core
@pytest.mark.parametrize(
    "argument, values",
    [("names", {"names": ["a", None], "data": [b"", b""]}), ("data", {"names": ["a", "b"], "data": [b"", None]})],
)
def test_null_elements(conn, watcher, argument, values):
    with refused(watcher, "22004", f'"{argument}"', "2"):
        BY_NAME["insert_many"].call(conn, {"run_id": "a run", **values})
    with refused(watcher, "22004", '"exclude_holding"', "1"):
        BY_NAME["runs"].call(conn, {"exclude_holding": [None]})


def test_empty_arrays_record_nothing(conn, watcher):
    before = everything(watcher)
    assert BY_NAME["insert_many"].call(conn, {"run_id": "nothing", "names": [], "data": []}) == []
    assert everything(watcher) == before
    assert insert(conn, "nothing", "first").seq == 0
    conn.execute("SELECT bide.purge_run('nothing', true)")


def test_arrays_of_other_shapes(conn):
    """Bounds and dimensions of an SQL array mean nothing here: elements count in their order."""
    conn.execute("SELECT seq FROM bide.insert_many('shapes', '[5:6]={a,b}', '[-1:0]={x,y}')")
    assert [(step.seq, step.name, step.data) for step in load_all(conn, "shapes")] == [(0, "a", b"x"), (1, "b", b"y")]
    state = sqlstate_of(conn.execute, "SELECT seq FROM bide.insert_many('shapes', '{{c},{d}}', '{{x},{y}}')")
    assert state in (None, "22023", "2202E")
    assert_gap_free(load_all(conn, "shapes"))
    conn.execute("SELECT bide.purge_run('shapes', true)")


# -- arguments that only have their default, stores, words, roles ---------------------------------


@pytest.mark.core
@pytest.mark.parametrize(
    "argument, value", [("fence", 7), ("fence", 2**63 - 1), ("publish", "topic"), ("wake", True)]
)
@pytest.mark.parametrize("function", [f for f in WRITING if f.name.startswith("insert")], ids=lambda f: f.name)
def test_what_a_later_version_will_do(conn, watcher, function, argument, value):
    if argument not in [name for name, _, _ in function.arguments]:
        with refused(watcher, "42883", by_postgres=True):  # insert_many publishes and wakes nothing
            conn.execute(f"SELECT seq FROM bide.insert_many('a run', '{{a}}', '{{x}}', {argument} => '{value}')")
        return
    with refused(watcher, "0A000", f'"{argument}"'):
        function.call(conn, function.values(**{argument: value}))


@pytest.mark.core
@pytest.mark.parametrize("function", [f for f in WRITING if f.name.startswith("insert")], ids=lambda f: f.name)
def test_negative_fence(conn, watcher, function):
    with refused(watcher, "22023", '"fence"', "-1"):
        function.call(conn, function.values(fence=-1))


@pytest.mark.core
@pytest.mark.parametrize(
    "store", ["nowhere", "", "BIDE", "bide ", "steps", "s" * 500, "'; DROP TABLE bide.steps; --"]
)
@pytest.mark.parametrize("function", [f for f in FUNCTIONS if STORE in f.arguments], ids=lambda f: f.name)
def test_unknown_store(conn, watcher, function, store):
    with refused(watcher, "42704", f'"{store}"'):
        function.call(conn, function.values(store=store))


def test_a_store_name_longer_than_any(conn, watcher):
    with refused(watcher, "22023", '"store"', "1001"):
        BY_NAME["insert"].call(conn, BY_NAME["insert"].values(store="s" * 1001))


@pytest.mark.core
def test_grants_of_unknown_words_and_roles(conn, watcher):
    grant = BY_NAME["grant_access"]
    for word in ("owner", "WRITER", "", " writer"):
        with refused(watcher, "22023", '"access"'):
            grant.call(conn, {"role": "pg_monitor", "access": word})
    for role in ("nobody of that name", "public", "PUBLIC", "pg_monitor, public", 'x" TO y; --'):
        with refused(watcher, "42704", f'"{role}"'):
            grant.call(conn, {"role": role, "access": "writer"})
    with refused(watcher, "22023", '"role"'):
        grant.call(conn, {"role": "", "access": "writer"})


@pytest.mark.core
def test_check_schema_of_another_version(conn, watcher):
    for expected in (0, 2, -1, 2**31 - 1):
        with refused(watcher, "55000", str(expected), "1"):
            BY_NAME["check_schema"].call(conn, {"expected": expected})


@pytest.mark.core
def test_purge_of_an_unfinished_run(conn, watcher):
    fill(conn)
    with refused(watcher, "55000", '"a run"', "force"):
        conn.execute("SELECT bide.purge_run('a run')")
    assert conn.execute("SELECT bide.purge_run('no such run')").fetchone() == (0,)
    assert conn.execute("SELECT bide.purge_run('no such run', true)").fetchone() == (0,)


# -- where a call stands ---------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("function", WRITING, ids=ids(WRITING))
def test_in_a_transaction_block(conn, watcher, function):
    fill(conn)
    for begin in ("BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN; SAVEPOINT s"):
        conn.execute(begin)
        with refused(
            watcher, "25001", f"bide.{function.name}", "autocommit", "SET LOCAL bide.transaction_block = allow"
        ):
            function.call(conn)
        conn.execute("ROLLBACK")
    conn.execute("BEGIN")
    conn.execute("SET LOCAL bide.transaction_block = allow")
    function.call(conn)  # control
    conn.execute("ROLLBACK")


def test_reads_in_a_transaction_block(conn):
    conn.execute("BEGIN")
    for function in FUNCTIONS:
        if function.access == "reader":
            function.call(conn)
    conn.execute("ROLLBACK")


@pytest.mark.core
@pytest.mark.parametrize("function", [*WRITING, BY_NAME["grant_access"]], ids=lambda f: f.name)
def test_in_a_read_only_transaction(cluster, own_db, watcher, function):
    with cluster.connect(dbname=own_db, settings={"default_transaction_read_only": "on"}) as conn:
        with refused(watcher, "25006", "read-only", by_postgres=True):
            function.call(conn)
    with cluster.connect(dbname=own_db, settings={"bide.transaction_block": "allow"}) as conn:
        for begin in ("BEGIN READ ONLY", "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE"):
            conn.execute(begin)
            with refused(watcher, "25006", "read-only", by_postgres=True):
                function.call(conn)
            conn.execute("ROLLBACK")


def test_reads_in_a_read_only_transaction(cluster, own_db):
    with cluster.connect(dbname=own_db, settings={"default_transaction_read_only": "on"}) as conn:
        for function in FUNCTIONS:
            if function.access == "reader":
                function.call(conn)


# -- no privilege ----------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("function", FUNCTIONS, ids=ids(FUNCTIONS))
def test_without_privilege(cluster, own_db, watcher, function):
    watcher.execute("CREATE ROLE nobody_at_all LOGIN")
    try:
        with cluster.connect(dbname=own_db, user="nobody_at_all") as conn:
            with refused(watcher, "42501", by_postgres=True):
                function.call(conn)
    finally:
        watcher.execute("DROP ROLE nobody_at_all")


# -- CBOR ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\x18", b"\x01\x01", b"\xa1\x61a", b"\xff", b"\x9f"])
def test_what_is_no_cbor(conn, watcher, data):
    with refused(watcher, "22P02"):
        BY_NAME["from_cbor"].call(conn, {"data": data})


@pytest.mark.parametrize(
    "data",
    [b"\x41a", b"\xa1\x01\x02", b"\xf9\x7e\x00", b"\xf9\x7c\x00"],
    ids=["bytes", "number as key", "nan", "infinity"],
)
def test_cbor_that_json_cannot_say(conn, watcher, data):
    with refused(watcher, "22023"):
        BY_NAME["from_cbor"].call(conn, {"data": data})


def test_numbers_that_cbor_cannot_hold(conn, watcher):
    with refused(watcher, "22003", "0.10000000000000000555111512312578270211"):
        BY_NAME["to_cbor"].call(conn, {"document": "[0.1000000000000000055511151231257827021181583404541015625001]"})
