"""What is measured: the tables, the statements, the scenarios and their targets.

Ids and names are integers that pgbench computes and sends as text parameters, so that every variant
pays the same for them and the server computes none. Ids are 19 digits long: loaded runs lie between
1…0 and 8…0, new runs begin with 9 and so go to the right end of the indexes, scattered ones fall anywhere
among the loaded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

STEPS_A_RUN = 20
LOADED_BYTES = 32

# Tables that a call writes, one for each variant. `plain` is laid out as bide.steps is, indexes included;
# `go_steps` is what the Go library makes for itself: four columns, no time, no third index.
SETUP = """
CREATE EXTENSION IF NOT EXISTS bide;
CREATE SCHEMA bench;
CREATE TABLE bench.plain (LIKE bide.steps INCLUDING ALL);
CREATE TABLE bench.go_steps (
    run_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, name text NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (run_id, name), UNIQUE (run_id, seq)
);
CREATE FUNCTION bench.next_seq_v1(run text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    highest bigint;
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(run, 0));
    SELECT pg_catalog.max(s.seq) INTO highest FROM bench.go_steps AS s WHERE s.run_id OPERATOR(pg_catalog.=) run;
    RETURN COALESCE(highest OPERATOR(pg_catalog.+) 1, 0);
END $$;
-- pgbench tries 40001 again and nothing else; the Go client tries 23505 again too.
CREATE FUNCTION bench.go_insert(run text, step text, bytes bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    position bigint;
BEGIN
    INSERT INTO bench.go_steps (run_id, seq, name, data) VALUES (run, bench.next_seq_v1(run), step, bytes)
    ON CONFLICT (run_id, name) DO NOTHING RETURNING seq INTO position;
    RETURN position;
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION 'position taken' USING ERRCODE = 'serialization_failure';
END $$;
-- The control of the held snapshot: a position from a row that every insert updates.
CREATE TABLE bench.counters (run_id text COLLATE "C" PRIMARY KEY, next bigint NOT NULL);
CREATE TABLE bench.counted (LIKE bide.steps INCLUDING ALL);
"""


def load_sql(table: str, runs: int, first: int = 0, of: int | None = None) -> str:
    """Runs `first` … `first + runs - 1` of `of`, in order of their ids, `STEPS_A_RUN` steps each."""
    return (
        f"INSERT INTO {table} (run_id, seq, name, data)"
        f" SELECT {run_id_sql('r', of or runs)}, s, 'step-' || pg_catalog.lpad(s::text, 2, '0'),"
        f" pg_catalog.decode(pg_catalog.md5(r::text) || pg_catalog.md5(s::text), 'hex')"
        f" FROM pg_catalog.generate_series({first}, {first + runs - 1}) AS r,"
        f" pg_catalog.generate_series(0, {STEPS_A_RUN - 1}) AS s;"
    )


def run_id_sql(number: str, of: int) -> str:
    return f"(1000000000000000000 + {number}::bigint * {7 * 10**18 // of})::text"


# -- ids: pgbench commands that set run, name and seq ---------------------------------------------

COUNT = "\\set n :n + 1\n"
NEW_RUN = "9000000000000000000 + :token * 100000000000000"
STEP_NAME = "\\set name 10000000 + :n\n"

# Runs of twenty steps, one after the other, each client its own.
MANY_RUNS = (
    COUNT
    + f"\\set run {NEW_RUN} + :client_id * 1000000000000 + :n / {STEPS_A_RUN}\n"
    + STEP_NAME
    + f"\\set seq :n % {STEPS_A_RUN}\n"
)
# One run for each client, as long as the measurement lasts.
LONG_RUNS = COUNT + f"\\set run {NEW_RUN} + :client_id * 1000000000000\n" + STEP_NAME + "\\set seq :n\n"
# All clients in one run. The bare INSERT counts for itself: client 3 of 8 takes 3, 11, 19 …
ONE_RUN = (
    COUNT
    + f"\\set run {NEW_RUN}\n"
    + "\\set name 10000000 + :n * :clients + :client_id\n"
    + "\\set seq :n * :clients + :client_id\n"
)
# As many runs, but new runs fall anywhere in the indexes, as random ids do.
SCATTERED = (
    COUNT
    + f"\\set h hash_murmur2(:token * 1000000000 + :client_id * 10000000 + :n / {STEPS_A_RUN})\n"
    + "\\set run 1000000000000000000 + abs(:h % 7000000000000000000)\n"
    + STEP_NAME
    + f"\\set seq :n % {STEPS_A_RUN}\n"
)
# A new run each time.
RUN_A_CALL = COUNT + f"\\set run {NEW_RUN} + :client_id * 1000000000000 + :n\n"

# -- statements -----------------------------------------------------------------------------------

BARE = "INSERT INTO bench.plain (run_id, seq, name, data) VALUES (:run, :seq, :name, :payload);\n"
GO = (
    "INSERT INTO bench.go_steps (run_id, seq, name, data)"
    " VALUES (:run, bench.next_seq_v1(:run), :name, :payload)"
    " ON CONFLICT (run_id, name) DO NOTHING RETURNING seq;\n"
)
BIDE = "SELECT seq, inserted, stored FROM bide.insert(:run, :name, :payload);\n"
MANY = "SELECT name, seq, inserted FROM bide.insert_many(:run, :names{n}, :payloads{n});\n"
GO_RETRIED = "SELECT bench.go_insert(:run, :name, :payload);\n"
COUNTER = (
    "WITH c AS (INSERT INTO bench.counters AS c VALUES (:run, 1)"
    " ON CONFLICT (run_id) DO UPDATE SET next = c.next + 1 RETURNING c.next)"
    " INSERT INTO bench.counted (run_id, seq, name, data) SELECT :run, c.next - 1, :name, :payload FROM c;\n"
)
# The Go client waits before try n + 1 a random time up to 2^n ms, at most 100 ms. pgbench begins a failed
# script again from its top and keeps its variables, hence the count of tries.
BACKOFF = (
    "\\set tries :tries + 1\n"
    "\\if :tries > 1\n"
    "\\set ceiling least(100000, 250 * (1 << least(:tries, 10)))\n"
    "\\set pause random(0, :ceiling)\n"
    "\\sleep :pause us\n"
    "\\endif\n"
)
BACKOFF_OVER = "\\set tries 0\n"

# Many calls in one statement, for the cost of a call without its transaction.
CALLS = 500
CALL_ID = ":run || '-' || g"
CALLED = f"pg_catalog.generate_series(1, {CALLS}) AS g"
IDS_ONLY = f"SELECT pg_catalog.count(*) FROM {CALLED}, LATERAL pg_catalog.unnest(ARRAY[{CALL_ID}]) AS id;\n"
CALLS_BARE = (
    f"INSERT INTO bench.plain (run_id, seq, name, data) SELECT {CALL_ID}, 0, 'step', :payload::bytea FROM {CALLED};\n"
)
CALLS_GO = (
    "INSERT INTO bench.go_steps (run_id, seq, name, data)"
    " SELECT id, bench.next_seq_v1(id), 'step', :payload::bytea"
    f" FROM (SELECT {CALL_ID} AS id FROM {CALLED} OFFSET 0) AS ids"
    " ON CONFLICT (run_id, name) DO NOTHING;\n"
)
CALLS_BIDE = f"SELECT pg_catalog.count(*) FROM {CALLED}, LATERAL bide.insert({CALL_ID}, 'step', :payload);\n"
CALLS_TAKEN = (
    "SELECT pg_catalog.count(*) FROM bench.pages AS p, pg_catalog.unnest(p.run_ids) AS id,"
    " LATERAL bide.insert(id, 'step-00', :payload) WHERE p.page = 0;\n"
)

# A page of the listing against as many look-ups by primary key. Both read their page's row.
PAGE = 500
PAGES_SQL = """
-- In a table, for pgbench would take :complete for a variable.
CREATE TABLE bench.ended AS SELECT '{{run:complete,run:aborted,run:cancelled}}'::text[] AS names;
CREATE TABLE bench.pages (page int PRIMARY KEY, after text COLLATE "C" NOT NULL, run_ids text[] COLLATE "C" NOT NULL);
INSERT INTO bench.pages
SELECT i / {page}, COALESCE(pg_catalog.lag(pg_catalog.max(id)) OVER (ORDER BY i / {page}), ''),
    pg_catalog.array_agg(id ORDER BY id)
FROM (SELECT r AS i, {id} COLLATE "C" AS id FROM pg_catalog.generate_series(0, {runs} - 1) AS r) AS ids
GROUP BY i / {page};
VACUUM ANALYZE bench.pages;
"""
A_PAGE = "\\set page random(0, :pages - 1)\n"
LOOK_UPS = (
    A_PAGE + "SELECT pg_catalog.count(*) FROM bench.pages AS p, pg_catalog.unnest(p.run_ids) AS r(run_id),"
    " LATERAL (SELECT s.seq FROM bide.steps AS s WHERE s.run_id = r.run_id AND s.name = 'step-07' OFFSET 0) AS found"
    " WHERE p.page = :page;\n"
)
RUNS = (
    A_PAGE
    + "SELECT pg_catalog.count(*) FROM bench.pages AS p,"
    + f" LATERAL bide.runs(after => p.after, max_rows => {PAGE}) AS r WHERE p.page = :page;\n"
)
RUNS_UNFINISHED = (
    A_PAGE + "SELECT pg_catalog.count(*) FROM bench.pages AS p, LATERAL bide.runs(after => p.after,"
    " exclude_holding => (SELECT e.names FROM bench.ended AS e),"
    f" max_rows => {PAGE}) AS r WHERE p.page = :page;\n"
)


def payload(size: int) -> str:
    """Random, so that compression neither helps nor lies; the same in every run."""
    return "\\x" + random.Random(size).randbytes(size).hex()


def arrays(count: int) -> dict[str, str]:
    """Arguments of insert_many, as a driver sends them: array literals."""
    quoted = '"\\' + payload(LOADED_BYTES) + '"'
    return {
        f"names{count}": "{" + ",".join(f"1{n:07}" for n in range(count)) + "}",
        f"payloads{count}": "{" + ",".join([quoted] * count) + "}",
    }


# -- scenarios ------------------------------------------------------------------------------------

SMALL, LARGE = "small", "large"


@dataclass(frozen=True)
class Variant:
    name: str
    script: str
    units: int = 1  # steps, calls or rows of one transaction
    database: str = SMALL
    held: bool = False
    retry: bool = False
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    key: str
    title: str
    variants: tuple[Variant, ...]
    clients: int = 8
    payload_bytes: int = LOADED_BYTES
    settings: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    needs_large: bool = False
    unit: str = "steps"
    base: int = 0  # the variant that the ratios are taken to


@dataclass(frozen=True)
class Target:
    """`kind`: "speed" variant/base at least, "time" variant/base at most, "us" µs a unit at most."""

    scenario: str
    variant: str
    base: str
    kind: str
    limit: float


def _three(ids: str) -> tuple[Variant, ...]:
    return (Variant("bare INSERT", ids + BARE), Variant("Go statement", ids + GO), Variant("bide.insert", ids + BIDE))


def scenarios() -> list[Scenario]:
    found = []
    for clients in (1, 8, 32):
        found.append(
            Scenario(
                f"many-{clients}", f"many runs, {clients} clients", _three(MANY_RUNS), clients, quick=clients > 1
            )
        )
    for clients in (8, 32):
        found.append(Scenario(f"one-{clients}", f"one run, {clients} clients", _three(ONE_RUN), clients))
    found.append(
        Scenario(
            "async-8",
            "many runs, 8 clients, synchronous_commit off",
            _three(MANY_RUNS),
            settings={"synchronous_commit": "off"},
        )
    )
    for size, text in ((1024, "1 kB"), (32 * 1024, "32 kB")):
        found.append(
            Scenario(
                f"payload-{size}", f"many runs, 8 clients, payload {text}", _three(MANY_RUNS), payload_bytes=size
            )
        )
    for clients in (1, 8):
        found.append(
            Scenario(
                f"batch-{clients}",
                f"steps a second by batch, {clients} clients",
                (
                    Variant("bide.insert", MANY_RUNS + BIDE),
                    Variant("insert_many(10)", RUN_A_CALL + MANY.format(n=10), 10, variables=arrays(10)),
                    Variant("insert_many(100)", RUN_A_CALL + MANY.format(n=100), 100, variables=arrays(100)),
                ),
                clients,
                quick=clients > 1,
            )
        )
    found.append(
        Scenario(
            "serializable",
            "one run, 16 clients, serializable, failures tried again",
            (
                Variant("Go statement, tried again at once", ONE_RUN + GO_RETRIED, retry=True),
                Variant(
                    "Go statement, with the Go client's pauses",
                    BACKOFF + ONE_RUN + GO_RETRIED + BACKOFF_OVER,
                    retry=True,
                    variables={"tries": "0"},
                ),
                Variant("bide.insert", ONE_RUN + BIDE, retry=True),
            ),
            16,
            settings={"default_transaction_isolation": "serializable"},
            quick=True,
        )
    )
    found.append(
        Scenario(
            "calls",
            f"the call alone: {CALLS} in one statement on new runs, synchronous_commit off",
            (
                Variant("making the ids", RUN_A_CALL + IDS_ONLY, CALLS),
                Variant("INSERT … SELECT", RUN_A_CALL + CALLS_BARE, CALLS),
                Variant("Go statement", RUN_A_CALL + CALLS_GO, CALLS),
                Variant("bide.insert", RUN_A_CALL + CALLS_BIDE, CALLS),
                Variant("bide.insert, name taken", CALLS_TAKEN, CALLS),
            ),
            1,
            settings={"synchronous_commit": "off"},
            quick=True,
            unit="calls",
            base=1,
        )
    )
    found.append(
        Scenario(
            "held",
            "a run a client, 8 clients, without and with a held snapshot",
            (
                Variant("bide.insert", LONG_RUNS + BIDE),
                Variant("bide.insert, held", LONG_RUNS + BIDE, held=True),
                Variant("counter row", LONG_RUNS + COUNTER),
                Variant("counter row, held", LONG_RUNS + COUNTER, held=True),
            ),
            quick=True,
        )
    )
    for key, text, ids in (
        ("size", "new runs at the end of the indexes", MANY_RUNS),
        ("scattered", "new runs scattered over the indexes", SCATTERED),
    ):
        found.append(
            Scenario(
                key,
                f"small and large table, 8 clients, {text}",
                (
                    Variant("bide.insert, small", ids + BIDE),
                    Variant("bide.insert, large", ids + BIDE, database=LARGE),
                    Variant("bare INSERT, small", ids + BARE),
                    Variant("bare INSERT, large", ids + BARE, database=LARGE),
                ),
                needs_large=True,
                quick=key == "size",
            )
        )
    found.append(
        Scenario(
            "runs",
            f"a page of {PAGE} runs",
            (
                Variant(f"{PAGE} look-ups by primary key", LOOK_UPS, PAGE, LARGE),
                Variant("bide.runs", RUNS, PAGE, LARGE),
                Variant("bide.runs, unfinished only", RUNS_UNFINISHED, PAGE, LARGE),
            ),
            1,
            needs_large=True,
            unit="runs",
            quick=True,
            settings={"enable_hashjoin": "off", "enable_mergejoin": "off", "max_parallel_workers_per_gather": "0"},
        )
    )
    return found


TARGETS = (
    Target("many-8", "bide.insert", "bare INSERT", "speed", 0.90),
    Target("many-8", "bide.insert", "Go statement", "speed", 1.15),
    Target("many-32", "bide.insert", "bare INSERT", "speed", 0.90),
    Target("many-32", "bide.insert", "Go statement", "speed", 1.15),
    Target("serializable", "bide.insert", "Go statement, tried again at once", "speed", 5),
    Target("serializable", "bide.insert", "Go statement, with the Go client's pauses", "speed", 5),
    Target("calls", "bide.insert", "", "us", 12),
    Target("batch-1", "insert_many(100)", "bide.insert", "speed", 8),
    Target("batch-8", "insert_many(100)", "bide.insert", "speed", 8),
    Target("size", "bide.insert, large", "bide.insert, small", "speed", 0.90),
    Target("held", "bide.insert, held", "bide.insert", "speed", 0.95),
    Target("runs", "bide.runs", f"{PAGE} look-ups by primary key", "time", 3),
)
