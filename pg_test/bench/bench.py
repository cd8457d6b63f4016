#!/usr/bin/env python3
"""Measures bide on one server against what it is up against: a bare INSERT whose position the client
knows (the limit), and the Go library's statement with its plpgsql function.

    bench.py                                        a private server, made from BIDE_PG_BINDIR and removed
    bench.py --bindir B --host SOCKET_DIR --port P  that server, as a superuser; bide must be installed there
    bench.py --quick                                the targets only, on smaller tables, in about three minutes

It makes two databases of its own, bide_bench_small and bide_bench_large, and drops them at the end; it
never touches another. Variants take turns in every round, each on a freshly loaded table and after a
checkpoint; speeds are medians over rounds, ratios medians of each round's ratio. pgbench is the client,
always with prepared statements. A target that is missed is printed as MISSED; the exit code is 0 all the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from report import Result, Results
from server import MAINTENANCE_DB, BenchError, Server, private_server
from workload import (
    LARGE,
    LOADED_BYTES,
    PAGE,
    PAGES_SQL,
    SETUP,
    SMALL,
    STEPS_A_RUN,
    TARGETS,
    Scenario,
    Variant,
    load_sql,
    payload,
    run_id_sql,
    scenarios,
)

SMALL_RUNS = 500  # 10 thousand rows
LARGE_RUNS = 500_000  # 10 million rows
LISTED_RUNS = 1_000_000  # 20 million rows
LOAD_RUNS = 50_000  # of one statement
TABLES = ("bide.steps", "bench.plain", "bench.go_steps", "bench.counted", "bench.counters")


class Bench:
    def __init__(self, server: Server, options: argparse.Namespace):
        self.server = server
        self.options = options
        self.results = Results()
        self._tokens = 0
        self._started = time.monotonic()

    def run(self, chosen: list[Scenario]) -> None:
        """All of `chosen`, what needs the large database last, its listing at the very end."""
        self._make_database(SMALL, SMALL_RUNS)
        if any(s.needs_large for s in chosen):
            self._make_database(LARGE, self._large_runs())
        with tempfile.TemporaryDirectory() as folder:
            for scenario in chosen:
                if scenario.key == "runs":
                    self._prepare_listing()
                self._measure(scenario, Path(folder))

    def drop_databases(self) -> None:
        for name in (SMALL, LARGE):
            self.server.psql(MAINTENANCE_DB, f"DROP DATABASE IF EXISTS {_dbname(name)} WITH (FORCE);")

    # -- tables -------------------------------------------------------------------------------

    def _make_database(self, name: str, runs: int) -> None:
        self._say(f"loading {runs * STEPS_A_RUN:,} rows into {_dbname(name)}")
        self.server.psql(MAINTENANCE_DB, f"CREATE DATABASE {_dbname(name)} TEMPLATE template0 ENCODING 'UTF8';")
        self.server.psql(_dbname(name), SETUP)
        if name == SMALL:
            self.server.psql(_dbname(name), PAGES_SQL.format(page=PAGE, runs=runs, id=run_id_sql("r", runs)))
        else:
            for table in ("bide.steps", "bench.plain"):
                self._load(table, 0, runs, self._listed_runs())

    def _load(self, table: str, first: int, last: int, of: int) -> None:
        for start in range(first, last, LOAD_RUNS):
            self.server.psql(_dbname(LARGE), load_sql(table, min(LOAD_RUNS, last - start), start, of))
        self.server.psql(_dbname(LARGE), f"VACUUM ANALYZE {table};")

    def _prepare_listing(self) -> None:
        """Empties what was measured before out of the large table and fills it up."""
        large, listed = self._large_runs(), self._listed_runs()
        self._say(f"filling up to {listed * STEPS_A_RUN:,} rows in {listed:,} runs")
        self.server.psql(_dbname(LARGE), "TRUNCATE bench.plain; DELETE FROM bide.steps WHERE name NOT LIKE 'step-%';")
        self._load("bide.steps", min(large, listed), listed, listed)
        self.server.psql(_dbname(LARGE), PAGES_SQL.format(page=PAGE, runs=listed, id=run_id_sql("r", listed)))

    def _reset_small(self) -> None:
        loads = [load_sql(table, SMALL_RUNS) for table in TABLES if table != "bench.counters"]
        self.server.psql(
            _dbname(SMALL), "\n".join([f"TRUNCATE {', '.join(TABLES)};", *loads, f"ANALYZE {', '.join(TABLES)};"])
        )

    def _large_runs(self) -> int:
        return max(SMALL_RUNS, round(LARGE_RUNS * self.options.large_scale))

    def _listed_runs(self) -> int:
        return max(self._large_runs(), round(LISTED_RUNS * self.options.runs_scale) // PAGE * PAGE)

    # -- measuring ----------------------------------------------------------------------------

    def _measure(self, scenario: Scenario, folder: Path) -> None:
        self._say(scenario.title)
        for number in range(self.options.rounds):
            for variant in scenario.variants:
                run = self._measure_once(scenario, variant, folder)
                self.results.add(
                    Result(scenario, variant, number, run.tps, run.latency_ms, run.transactions, run.retries)
                )
        print(self.results.table(scenario), end="\n\n", flush=True)

    def _measure_once(self, scenario: Scenario, variant: Variant, folder: Path):
        database = _dbname(variant.database)
        script = folder / "script.sql"
        script.write_text(variant.script)
        self._tokens += 1
        variables = {"n": -1, "token": self._tokens, "clients": scenario.clients, **variant.variables}
        if ":payload" in variant.script:
            variables["payload"] = payload(scenario.payload_bytes)
        if ":pages" in variant.script:
            variables["pages"] = self._listed_runs() // PAGE
        if variant.database == SMALL:
            self._reset_small()
        counted = scenario.unit == "steps" and variant.database == SMALL
        before = self._rows(database) if counted else 0
        self.server.psql(database, "CHECKPOINT;")
        with self.server.held_snapshot(database) if variant.held else nullcontext():
            run = self.server.pgbench(
                database,
                script,
                clients=scenario.clients,
                seconds=self.options.seconds,
                variables=variables,
                settings=scenario.settings,
                retry=variant.retry,
            )
        if run.transactions == 0:
            raise BenchError(f"{variant.name} finished nothing in {self.options.seconds} s: give more --seconds")
        if counted and (stored := self._rows(database) - before) != run.transactions * variant.units:
            raise BenchError(
                f"{variant.name} reported {run.transactions * variant.units} steps, the tables hold {stored}"
            )
        return run

    def _rows(self, database: str) -> int:
        """Of new steps, in all tables together: what pgbench says it did must be there."""
        counts = [
            f"(SELECT pg_catalog.count(*) FROM {t} WHERE name NOT LIKE 'step-%')"
            for t in TABLES
            if t != "bench.counters"
        ]
        return int(self.server.psql(database, f"SELECT {' + '.join(counts)};"))

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:4.0f} s] {text}", file=sys.stderr, flush=True)


def _dbname(name: str) -> str:
    return f"bide_bench_{name}"


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bindir", type=Path, help="bin folder of the server: its psql and pgbench are used")
    parser.add_argument("--host", help="socket folder or host of a server; without it a private one is made")
    parser.add_argument("--port", default="5432")
    parser.add_argument(
        "--dbname", default=MAINTENANCE_DB, help="where to connect to make them; nothing is written there"
    )
    parser.add_argument("--user", default="postgres", help="a superuser")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, help="length of one measurement (4, quick: 1)")
    parser.add_argument("--rounds", type=int, help="measurements of each variant (5, quick: 3)")
    parser.add_argument("--large-scale", type=float, help="1: 10 million rows in the large table (quick: 0.05)")
    parser.add_argument("--runs-scale", type=float, help="1: 1 million runs of 20 steps are listed (quick: 0.05)")
    parser.add_argument("--only", default="", help="scenarios, by key, with commas")
    parser.add_argument("--list", action="store_true", help="print the scenarios and stop")
    parser.add_argument("--csv", type=Path, default=Path("bench.csv"))
    options = parser.parse_args(argv)
    full, quick = (
        {"seconds": 4.0, "rounds": 5, "large_scale": 1.0, "runs_scale": 1.0},
        {"seconds": 1.0, "rounds": 3, "large_scale": 0.05, "runs_scale": 0.05},
    )
    for name, value in (quick if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.host and not options.bindir:
        parser.error("--host needs --bindir")
    return options


def _chosen(options: argparse.Namespace, major: int) -> list[Scenario]:
    known = scenarios()
    keys = [key for key in options.only.split(",") if key]
    if unknown := set(keys) - {s.key for s in known}:
        raise BenchError(f"no scenario is called {', '.join(sorted(unknown))}; --list names them")
    found = [s for s in known if s.key in keys] if keys else [s for s in known if s.quick or not options.quick]
    if major < 15 and any(v.retry for s in found for v in s.variants):
        print("left out: scenarios with retries, which pgbench knows from 15 on")
        found = [s for s in found if not any(v.retry for v in s.variants)]
    return found


def measure(server: Server, options: argparse.Namespace) -> None:
    major = int(server.psql(MAINTENANCE_DB, "SELECT pg_catalog.current_setting('server_version_num')::int / 10000;"))
    chosen = _chosen(options, major)
    description = [
        *server.description(),
        f"{options.rounds} rounds of {options.seconds:g} s, variants in turn, pgbench -M prepared, payload"
        f" {LOADED_BYTES} B unless said, small table {SMALL_RUNS * STEPS_A_RUN:,} rows, large table"
        f" {round(LARGE_RUNS * options.large_scale) * STEPS_A_RUN:,} rows,"
        f" listing of {round(LISTED_RUNS * options.runs_scale):,} runs",
    ]
    print("\n".join(description), end="\n\n", flush=True)
    bench = Bench(server, options)
    bench.drop_databases()
    try:
        bench.run(chosen)
    finally:
        bench.results.write_csv(options.csv, description)
        bench.drop_databases()
    print("Targets")
    for target in TARGETS:
        print(
            bench.results.verdict(target)
            or f"not run {target.scenario}: {target.variant} to {target.base or 'a limit'}"
        )
    print(f"\nAll measurements: {options.csv}")


def main(argv: list[str]) -> int:
    options = _options(argv)
    if options.list:
        for scenario in scenarios():
            print(f"{scenario.key:14} {'quick ' if scenario.quick else '      '} {scenario.title}")
        return 0
    try:
        with (
            nullcontext(Server(options.bindir, options.host, options.port, options.user))
            if options.host
            else private_server() as server
        ):
            measure(server, options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
