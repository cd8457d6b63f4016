# Promise 1: a step is recorded at most once; the first insert wins, everyone else gets what it stored.
# C-20, C-21, C-89, C-90, C-99, C-128, C-134, C-135.
# Method: sessions released together onto one name, each with bytes of its own, at every isolation level
# and on both paths. On the direct path no call may fail; through SPI at serializable, 40001 is run again
# as a client does, and counted.
# Control: the same race over "look, then insert" without bide must give more than one winner.

import pytest

from calls import LEVELS, assert_gap_free, get, insert, load_all
from racing import Retries, failures, race, sessions
from waits import wait_until

WRITERS = 64


def one_round(conns, run, name, retries):
    """Every session inserts `name`; gives what the single winner stored."""
    mine = [f"bytes of writer {number}".encode() for number in range(len(conns))]
    results = race(
        [lambda c=c, data=data: retries(insert, c, run, name, data) for c, data in zip(conns, mine)]
    )
    assert failures(results) == []
    winners = [number for number, row in enumerate(results) if row.inserted]
    assert len(winners) == 1, f"winners: {winners}"
    won = results[winners[0]]
    assert won.stored is None
    for number, row in enumerate(results):
        assert row.seq == won.seq, f"writer {number} was told position {row.seq}, the winner {won.seq}"
        if number != winners[0]:
            assert row.stored == mine[winners[0]], f"writer {number} got {row.stored!r}"
    return mine[winners[0]], won.seq


def rounds_of(path_db, run, level, rounds):
    retries = Retries()
    with sessions(path_db.connect, WRITERS, level) as conns:
        for number in range(rounds):
            data, seq = one_round(conns, run, f"step {number}", retries)
            assert seq == number, "a refused insert used up a position"
            for conn in conns[:4]:
                found = get(conn, run, f"step {number}")
                assert (found.seq, found.data) == (seq, data)
        steps = load_all(conns[0], run)
    assert_gap_free(steps)
    assert len(steps) == rounds
    print(f"{path_db.path}, {level}: {rounds} rounds of {WRITERS} writers, run again: {dict(retries.counts)}")
    if path_db.path == "direct" or level != "serializable":
        assert not retries.counts
    else:
        assert set(retries.counts) <= {"40001"}


@pytest.mark.core
@pytest.mark.parametrize("level", LEVELS)
def test_one_winner_among_64_racers(path_db, run, level):
    rounds_of(path_db, f"{run} {path_db.path} {level}", level, rounds=4)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", LEVELS)
def test_one_winner_among_64_racers_for_long(path_db, run, level):
    rounds_of(path_db, f"{run} {path_db.path} {level}", level, rounds=200)


@pytest.mark.parametrize("level", LEVELS)
def test_one_winner_on_each_of_32_runs(path_db, run, level):
    retries = Retries()
    with sessions(path_db.connect, WRITERS, level) as conns:
        results = race(
            [
                lambda c=c, n=n: retries(insert, c, f"{run} {path_db.path} {level}/{n % 32}", "step", b"%d" % n)
                for n, c in enumerate(conns)
            ]
        )
    assert failures(results) == []
    for number in range(32):
        pair = results[number], results[number + 32]
        assert sorted(row.inserted for row in pair) == [False, True] and {row.seq for row in pair} == {0}
    if path_db.path == "direct" or level != "serializable":
        assert not retries.counts


def test_an_effect_behind_a_claim_happens_once(path_db, run):
    with path_db.connect() as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS public.effects (run_id text)")
    with sessions(path_db.connect, WRITERS) as conns:
        for number in range(5):
            claimed = f"{run}/{number}"

            def worker(conn):
                if insert(conn, claimed, "claim").inserted:
                    conn.execute("INSERT INTO public.effects VALUES (%s)", (claimed,))

            assert failures(race([lambda c=c: worker(c) for c in conns])) == []
            fired = conns[0].execute("SELECT count(*) FROM public.effects WHERE run_id = %s", (claimed,))
            assert fired.fetchone() == (1,)


def test_the_header_of_concurrent_first_writers_is_one_and_first(path_db, run):
    with sessions(path_db.connect, 16) as conns:
        for number in range(20):
            first = f"{run}/{path_db.path}/{number}"

            def writer(conn, who):
                insert(conn, first, "@journal", b"header of %d" % who)
                return insert(conn, first, f"step {who}")

            assert failures(race([lambda c=c, w=w: writer(c, w) for w, c in enumerate(conns)])) == []
            steps = load_all(conns[0], first)
            assert_gap_free(steps)
            assert len(steps) == 17 and steps[0].name == "@journal"


def test_control_look_then_insert_has_many_winners(make_db):
    database = make_db(extension=False)
    database.psql("CREATE TABLE scratch (run_id text, name text)")
    with sessions(database.connect, 16) as conns:

        def look_then_insert(conn, name):
            if conn.execute("SELECT 1 FROM scratch WHERE name = %s", (name,)).fetchone() is None:
                conn.execute("INSERT INTO scratch VALUES ('r', %s)", (name,))
                return 1
            return 0

        rounds = iter(range(10_000))

        def a_round():
            name = str(next(rounds))
            return sum(race([lambda c=c: look_then_insert(c, name) for c in conns])) > 1

        wait_until(a_round, what="the race to show two winners")
