# The history checker: passes what is right, and catches each kind of broken history.
# Method: histories by hand; then histories of real readers over a writer that is broken on purpose, in
# a scratch table without the unique key: it skips the lock, and either takes max+1 or a sequence.
# Control: the same readers and the same load over a writer that holds a lock must pass.

import pytest

from history import Acknowledged, Observation, violations
from racing import Until, failures, now, race

FINAL = [(0, "a"), (1, "b"), (2, "c")]


def seen(*steps, reader="r", began=0.0, ended=0.0):
    return Observation(reader, tuple(steps), began, ended)


def test_a_right_history_passes():
    prefixes = [seen(*FINAL[:n], began=n, ended=n + 0.5) for n in range(4)]
    acks = [Acknowledged(step, step[0] + 0.9) for step in FINAL]
    assert violations(prefixes, FINAL, acks) == []
    assert violations([], []) == []


@pytest.mark.parametrize(
    "observations, final, acks, words",
    [
        ([], [(0, "a"), (2, "c")], [], "position 2"),
        ([], [(0, "a"), (0, "b")], [], "position 0"),
        ([], [(1, "a")], [], "position 1"),
        ([], [(0, "a"), (1, "a")], [], "more than once"),
        ([seen((0, "a"), (2, "c"))], FINAL, [], r"appeared late, below it: \[\(1, 'b'\)\]"),
        ([seen((1, "b"))], FINAL, [], r"appeared late, below it: \[\(0, 'a'\)\]"),
        ([seen((0, "b"))], FINAL, [], "saw"),
        ([seen((0, "a"), (1, "x"))], FINAL, [], "saw"),
        ([seen(*FINAL, (3, "d"))], FINAL, [], "the end"),
        ([seen((1, "b"), (0, "a"))], FINAL, [], "saw"),
        ([seen(*FINAL[:2], ended=1), seen(*FINAL[:1], began=2, ended=3)], FINAL, [], "saw 1 steps after"),
        ([seen(*FINAL[:1], began=2, ended=3)], FINAL, [Acknowledged((1, "b"), 1)], "had been acknowledged"),
        ([], FINAL, [Acknowledged((3, "d"), 1)], "is gone"),
    ],
)
def test_a_broken_history_is_caught(observations, final, acks, words):
    import re

    found = violations(observations, final, acks)
    assert any(re.search(words, line) for line in found), found


def test_overlapping_observations_are_not_compared():
    long = seen(*FINAL, began=0, ended=5)
    short = seen((0, "a"), began=4, ended=6)
    assert violations([long, short], FINAL, [Acknowledged((2, "c"), 4.5)]) == []


# -- writers that are broken on purpose ---------------------------------------------------------

TABLES = "CREATE TABLE scratch (seq bigint NOT NULL, name text NOT NULL); CREATE SEQUENCE scratch_seq MINVALUE 0"
MAX_PLUS_1 = "INSERT INTO scratch SELECT coalesce(max(seq) + 1, 0), %s FROM scratch"
FROM_SEQUENCE = "INSERT INTO scratch VALUES (nextval('scratch_seq'), %s)"


def read(conn, reader):
    began = now()
    steps = conn.execute("SELECT seq, name FROM scratch ORDER BY seq, name COLLATE \"C\"").fetchall()
    return Observation(reader, tuple(steps), began, now())


@pytest.fixture
def scratch(make_db):
    database = make_db(extension=False)
    database.psql(TABLES)
    return database


def test_max_plus_one_without_a_lock_is_caught(scratch):
    with scratch.connect(autocommit=False) as one, scratch.connect() as two, scratch.connect() as reader:
        one.execute(MAX_PLUS_1, ("a",))
        two.execute(MAX_PLUS_1, ("b",))
        between = read(reader, "reader")
        one.commit()
        after = read(reader, "reader")
    assert between.steps == ((0, "b"),) and after.steps == ((0, "a"), (0, "b"))
    found = violations([between, after], list(after.steps))
    assert any("position 0 (b)" in line for line in found) and any("appeared late" in line for line in found)


def test_a_sequence_without_a_lock_is_caught(scratch):
    with scratch.connect(autocommit=False) as one, scratch.connect() as two, scratch.connect() as reader:
        one.execute(FROM_SEQUENCE, ("a",))
        two.execute(FROM_SEQUENCE, ("b",))
        between = read(reader, "reader")
        one.commit()
        after = read(reader, "reader")
    final = list(after.steps)
    assert final == [(0, "a"), (1, "b")], "the final list alone looks right"
    assert violations([], final) == []
    assert any("appeared late, below it: [(0, 'a')]" in line for line in violations([between, after], final))


@pytest.mark.parametrize("locked", [False, True], ids=["without_the_lock", "control_with_the_lock"])
def test_the_checker_under_load(scratch, locked):
    writers, inserts = 8, 25
    observations: list[Observation] = []

    def writer(number):
        with scratch.connect(autocommit=False) as conn:
            for n in range(inserts):
                if locked:
                    conn.execute("LOCK TABLE scratch IN EXCLUSIVE MODE")
                conn.execute(MAX_PLUS_1, (f"{number}/{n}",))
                conn.commit()

    with scratch.connect() as polling:
        with Until(lambda: observations.append(read(polling, "reader"))):
            assert failures(race([lambda n=n: writer(n) for n in range(writers)])) == []
        final = list(read(polling, "final").steps)
    assert len(final) == writers * inserts and len(observations) > 5
    found = violations(observations, final)
    assert (found == []) if locked else found, found[:3]
