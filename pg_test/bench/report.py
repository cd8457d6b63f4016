"""Results: medians, ratios, verdicts, a table for people and a CSV for programs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from workload import Scenario, Target, Variant


@dataclass(frozen=True)
class Result:
    scenario: Scenario
    variant: Variant
    round: int
    tps: float
    latency_ms: float
    transactions: int
    retries: int

    @property
    def per_second(self) -> float:
        return self.tps * self.variant.units

    @property
    def us_a_unit(self) -> float:
        """Of one client: what it waits for a step, call or row."""
        return self.latency_ms * 1000 / self.variant.units


class Results:
    def __init__(self):
        self._all: list[Result] = []

    def add(self, result: Result) -> None:
        self._all.append(result)

    def of(self, scenario: str, variant: str) -> list[Result]:
        return [r for r in self._all if r.scenario.key == scenario and r.variant.name == variant]

    def ratio(self, scenario: str, variant: str, base: str) -> float | None:
        """The median over rounds of each round's own ratio: a slow minute of the machine hits both sides."""
        pairs = list(zip(self.of(scenario, variant), self.of(scenario, base)))
        return median(a.per_second / b.per_second for a, b in pairs) if pairs else None

    def table(self, scenario: Scenario) -> str:
        base = scenario.variants[scenario.base].name
        rows = [[scenario.title, f"{scenario.unit}/s", "lowest–highest", "µs waited", f"to {base}"]]
        for variant in scenario.variants:
            found = self.of(scenario.key, variant.name)
            speeds = [r.per_second for r in found]
            name = variant.name
            if variant.retry:
                name += f" ({sum(r.retries for r in found) / sum(r.transactions for r in found):.2f} retries a step)"
            rows.append(
                [
                    name,
                    _number(median(speeds)),
                    f"{_number(min(speeds))}–{_number(max(speeds))}",
                    f"{median(r.us_a_unit for r in found):.1f}",
                    f"{self.ratio(scenario.key, variant.name, base):.2f}",
                ]
            )
        return _aligned(rows)

    def verdict(self, target: Target) -> str | None:
        """One line; None when the scenario was not run."""
        found = self.of(target.scenario, target.variant)
        if not found:
            return None
        title = found[0].scenario.title
        if target.kind == "us":
            value = median(r.us_a_unit for r in found)
            met, text = value <= target.limit, f"{target.variant}: {value:.1f} µs (at most {target.limit:g})"
        else:
            ratio = self.ratio(target.scenario, target.variant, target.base)
            value = 1 / ratio if target.kind == "time" else ratio
            met = value <= target.limit if target.kind == "time" else value >= target.limit
            bound = "at most" if target.kind == "time" else "at least"
            what = "time of " if target.kind == "time" else ""
            text = f"{what}{target.variant} to {target.base}: {value:.2f} ({bound} {target.limit:g})"
        return f"{'met   ' if met else 'MISSED'}  {title}: {text}"

    def write_csv(self, path: Path, description: list[str]) -> None:
        with open(path, "w", newline="") as file:
            file.writelines(f"# {line}\n" for line in description)
            out = csv.writer(file)
            out.writerow(
                (
                    "scenario",
                    "title",
                    "variant",
                    "clients",
                    "payload_bytes",
                    "database",
                    "settings",
                    "round",
                    "unit",
                    "units_a_transaction",
                    "tps",
                    "per_second",
                    "latency_ms",
                    "us_a_unit",
                    "transactions",
                    "retries",
                )
            )
            for r in self._all:
                settings = " ".join(f"{k}={v}" for k, v in r.scenario.settings.items())
                out.writerow(
                    (
                        r.scenario.key,
                        r.scenario.title,
                        r.variant.name,
                        r.scenario.clients,
                        r.scenario.payload_bytes,
                        r.variant.database,
                        settings,
                        r.round,
                        r.scenario.unit,
                        r.variant.units,
                        r.tps,
                        round(r.per_second, 1),
                        r.latency_ms,
                        round(r.us_a_unit, 2),
                        r.transactions,
                        r.retries,
                    )
                )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _aligned(rows: list[list[str]]) -> str:
    """A Markdown table that reads well as it stands."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(rows[0]), rule, *(line(row) for row in rows[1:])])
