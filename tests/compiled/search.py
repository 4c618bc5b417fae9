"""Searches for differences between the engines: random worlds from seeds, for a while."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.compiled.compare import compare
from tests.compiled.covered import why_not_covered, without_what_only_python_has
from tests.compiled.engine_worlds import History, compare_runs
from tests.compiled.python_sides import SCHEDULER_FIELDS
from tests.differential.coverage import count
from tests.differential.draw import SeedDraw
from tests.differential.manager_play import Record
from tests.differential.random_worlds import LEVELS
from tests.differential.scheduler_worlds import scheduler_world
from tests.differential.search import Failure, failure_of, seeds
from tests.differential.side import SNAPSHOT
from tests.differential.world import World

MAX_FAILURES = 5
DRAWN = {**LEVELS, "engine": scheduler_world}
"""How the worlds of each level are drawn; an engine's are a scheduler's with clients."""


@dataclass
class Tally:
    """What a search has done.

    steps : of schedulers, call by call; engine_steps : of whole engines
    left_out : worlds that something was left out of, by what it was first; not_covered : worlds
        that were not played, by why; refused : worlds that ended where the Python engine stops
    """

    worlds: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    engine_steps: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    not_covered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    cpu_s: float = 0.0


def search(base: int, duration_s: float, levels: list[str]) -> Tally:
    """Play worlds for so long; a world that fails is made small and kept."""
    tally, end = Tally(), time.monotonic() + duration_s
    start = time.process_time()
    for number, seed in enumerate(seeds(base, 0, 1)):
        if time.monotonic() >= end or len(tally.failures) >= MAX_FAILURES:
            break
        play_one(levels[number % len(levels)], seed, tally)
    tally.cpu_s = time.process_time() - start
    return tally


def play_one(level: str, seed: int, tally: Tally) -> None:
    """Play the world of a seed, if the compiled engine covers it, and count it."""
    drawn = DRAWN[level](SeedDraw(seed))
    world = without_what_only_python_has(drawn)
    reason = why_not_covered(world)
    if reason is not None:
        tally.not_covered[reason] += 1
        return
    judge = partial(compare_runs, seed=seed) if level == "engine" else compare
    try:
        found = judge(world)
    except Exception as error:
        tally.failures.append(failure_of(level, seed, world, error, judge))
        return
    tally.worlds[level] += 1
    left_out = why_not_covered(drawn)
    if left_out is not None:
        tally.left_out[left_out] += 1
    if level == "engine":
        _count_run(tally, found)
    else:
        _count_calls(tally, world, found)


def _count_run(tally: Tally, run: History | None) -> None:
    if run is None:
        tally.refused["build: ConfigError"] += 1
        return
    tally.engine_steps += len(run.diary.rows)
    tally.features.update(f"engine: {ended[1]}" for ended in run.diary.ended)


def _count_calls(tally: Tally, world: World, records: list[Record]) -> None:
    tally.calls[world.level] += len(records)
    tally.steps += sum(r.asked[0] == "schedule" for r in records)
    if records and records[-1].seen is None:
        tally.refused[f"{records[-1].asked[0]}: {records[-1].answer[1]}"] += 1
    count(world, records, tally.features)
    tally.features.update(_evictions(world, records))


def _evictions(world: World, records: list[Record]) -> Iterator[str]:
    """Without events, evictions show in what blocks are cached under."""
    fields = SCHEDULER_FIELDS if world.level == "scheduler" else (*SNAPSHOT, "block columns")
    place, before = fields.index("block columns"), None
    for record in records:
        columns = record.seen and record.seen[place]
        if before and columns and record.asked[0] in ("admit", "go on", "schedule"):
            pairs = zip(before, columns, strict=True)
            if any(old >= 0 and new != old for (old, _), (new, _) in pairs):
                yield "content evicted on allocation"
        before = columns


def as_json(tally: Tally, seed: int, is_compiled: bool) -> dict[str, Any]:
    plain = {k: dict(v) if isinstance(v, Counter) else v for k, v in vars(tally).items()}
    failures = [vars(f) for f in tally.failures]
    return {"seed": seed, "compiled": is_compiled, **plain, "failures": failures}
