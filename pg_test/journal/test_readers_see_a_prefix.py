# Promise 2: a reader always sees a prefix of the run; nothing ever appears below what it has seen.
# C-26, C-44, C-51, C-88, C-100.
# Method: 16 writers on one run; meanwhile one reader polls the whole run in one statement, others follow it
# with load page by page, from the start and from where they stand. history.py judges what they saw, and
# that every step acknowledged before a reading began was in it.
# Control: harness/test_history_checker.py, where broken writers under the same readers are caught.

import pytest

from calls import call, insert, load
from history import Acknowledged, Observation, violations
from racing import Until, failures, now, race, sessions

WRITERS = 16
OBSERVATIONS_MIN = 60


def whole(conn, run, reader):
    began = now()
    rows = call(conn, "SELECT seq, name FROM bide.steps WHERE run_id = %s ORDER BY seq", run)
    return Observation(reader, tuple((row.seq, row.name) for row in rows), began, now())


class Follower:
    """Asks for what comes after the last it has; all it got must be a prefix at any time."""

    def __init__(self, conn, run, reader, page):
        self.conn, self.run, self.reader, self.page = conn, run, reader, page
        self.steps: list[tuple[int, str]] = []

    def look(self):
        began = now()
        after = self.steps[-1][0] if self.steps else -1
        while rows := load(self.conn, self.run, after, self.page):
            self.steps += [(row.seq, row.name) for row in rows]
            after = self.steps[-1][0]
        return Observation(self.reader, tuple(self.steps), began, now())


def watch(path_db, run, inserts, level):
    seen: list[Observation] = []
    acknowledged: list[Acknowledged] = []

    def writer(conn, who):
        n = 0
        # On until the readers have had their fill, however the two are scheduled.
        while n < inserts or (len(seen) < OBSERVATIONS_MIN and n < 50 * inserts):
            row = insert(conn, run, f"{who}/{n}")
            acknowledged.append(Acknowledged((row.seq, f"{who}/{n}"), now()))
            n += 1

    with sessions(path_db.connect, WRITERS) as writers, sessions(path_db.connect, 4, level) as readers:
        polling = readers[0]
        followers = [
            Follower(conn, run, f"load by {page}", page) for conn, page in zip(readers[1:], (1, 7, 256))
        ]
        loops = [lambda: seen.append(whole(polling, run, "one statement"))]
        loops += [lambda f=f: seen.append(f.look()) for f in followers]
        with Until(*loops):
            assert failures(race([lambda c=c, w=w: writer(c, w) for w, c in enumerate(writers)])) == []
        final = list(whole(polling, run, "the end").steps)
        # Each has also caught up with the end.
        seen += [follower.look() for follower in followers]
    assert len(final) == len(acknowledged) >= WRITERS * inserts
    for follower in followers:
        assert follower.steps == final
    assert violations(seen, final, acknowledged) == []
    partial = sum(len(o.steps) < len(final) for o in seen)
    print(f"{path_db.path}, readers at {level}: {len(seen)} observations, {partial} of an unfinished run")
    assert partial > OBSERVATIONS_MIN / 2, "the readers hardly met the writers"


@pytest.mark.core
@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_every_observation_is_a_prefix(path_db, run, level):
    watch(path_db, f"{run} {path_db.path} {level}", inserts=40, level=level)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_observation_is_a_prefix_for_long(path_db, run):
    for number in range(50):
        watch(path_db, f"{run} {path_db.path}/{number}", inserts=40, level="read committed")
