"""A checker of what readers saw of one run while writers wrote it.

Given each reader's observations and the final list of the run, `violations` says whether
- the final list is a run: positions 0, 1, 2 …, no name twice;
- every observation is a prefix of the final list, so nothing appeared below what had been seen;
- no reader saw the run shrink, nor did one that began after another had ended see less than that;
- a step acknowledged before an observation began is in it.
Times are of one clock (the observing process's) and only compare what did not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

Step = tuple[int, str]  # (seq, name)
SHOWN_MAX = 5


@dataclass(frozen=True)
class Observation:
    reader: str
    steps: tuple[Step, ...]  # in the order in which they came
    began: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True)
class Acknowledged:
    step: Step
    at: float  # when the writer had the answer


def violations(
    observations: list[Observation], final: list[Step], acknowledged: list[Acknowledged] = []
) -> list[str]:
    """What is wrong, in words; empty: nothing is."""
    found = _final_is_a_run(final)
    for seen in observations:
        found += _is_prefix(seen, final)
    found += _never_shrinks(observations)
    found += _acknowledged_is_seen(observations, final, acknowledged)
    return found


def _final_is_a_run(final: list[Step]) -> list[str]:
    found = []
    for position, (seq, name) in enumerate(final):
        if seq != position:
            found.append(f"final list has position {seq} ({name}) where {position} was due")
            break
    names = [name for _, name in final]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        found.append(f"final list has names more than once: {twice[:SHOWN_MAX]}")
    return found


def _is_prefix(seen: Observation, final: list[Step]) -> list[str]:
    for index, step in enumerate(seen.steps):
        if index >= len(final) or final[index] != step:
            later = [s for s in final if s[0] <= step[0] and s not in seen.steps]
            due = final[index] if index < len(final) else "the end"
            return [
                f"{seen.reader} saw {step} at index {index} where the final list has {due};"
                f" appeared late, below it: {later[:SHOWN_MAX]}"
            ]
    return []


def _never_shrinks(observations: list[Observation]) -> list[str]:
    """In order of beginning: each must show as much as the longest that had ended by then."""
    found = []
    by_end = sorted(observations, key=lambda o: o.ended)
    longest, index = None, 0
    for seen in sorted(observations, key=lambda o: o.began):
        while index < len(by_end) and by_end[index].ended < seen.began:
            if longest is None or len(by_end[index].steps) > len(longest.steps):
                longest = by_end[index]
            index += 1
        if longest is not None and len(seen.steps) < len(longest.steps):
            found.append(
                f"{seen.reader} saw {len(seen.steps)} steps after {longest.reader} had seen {len(longest.steps)}"
            )
    return found


def _acknowledged_is_seen(
    observations: list[Observation], final: list[Step], acknowledged: list[Acknowledged]
) -> list[str]:
    stored = set(final)
    found = [f"{ack.step} was acknowledged and is gone" for ack in acknowledged if ack.step not in stored]
    acks = sorted(acknowledged, key=lambda a: a.at)
    highest, index = -1, 0
    for seen in sorted(observations, key=lambda o: o.began):
        while index < len(acks) and acks[index].at < seen.began:
            highest = max(highest, acks[index].step[0])
            index += 1
        if len(seen.steps) <= highest:
            found.append(
                f"{seen.reader} saw {len(seen.steps)} steps when position {highest} had been acknowledged"
            )
    return found
