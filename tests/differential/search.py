"""Searches for differences: random worlds from seeds, as many as a time allows."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.differential.closer import look_closer, look_for_q7
from tests.differential.compare import Difference, compare
from tests.differential.coverage import count
from tests.differential.draw import SeedDraw
from tests.differential.manager_play import Record
from tests.differential.random_worlds import LEVELS
from tests.differential.shrink import shrink
from tests.differential.theirs import load
from tests.differential.world import World

CLOSER_EVERY = 30
MAX_FAILURES = 5
SHRINK_S = 60.0
Compare = Callable[[World], list[Record]]


@dataclass
class Failure:
    """A world on which the two sides differ, made small."""

    level: str
    seed: int
    told: str
    world: str


@dataclass
class Tally:
    """What a search has done."""

    worlds: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    features: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    cpu_s: float = 0.0

    def add(self, other: Tally) -> None:
        self.worlds += other.worlds
        self.calls += other.calls
        self.steps += other.steps
        self.features += other.features
        self.failures += other.failures
        self.cpu_s += other.cpu_s

    def dumps(self) -> str:
        return json.dumps(self, default=vars, sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Tally:
        told: dict[str, Any] = json.loads(text)
        for key in ("worlds", "calls", "features"):
            told[key] = Counter(told[key])
        told["failures"] = [Failure(**f) for f in told["failures"]]
        return cls(**told)


def seeds(base: int, part: int, num_parts: int) -> Iterator[int]:
    """Return the endless seeds of one part of a search: disjoint from those of every other part."""
    number = part
    while True:
        yield (base << 40) + number
        number += num_parts


def search(base: int, part: int, num_parts: int, duration_s: float, levels: list[str]) -> Tally:
    """Play worlds for so long; a world that fails is made small and kept."""
    load()  # takes some seconds, which are not counted
    tally, end = Tally(), time.monotonic() + duration_s
    start = time.process_time()
    for number, seed in enumerate(seeds(base, part, num_parts)):
        if time.monotonic() >= end or len(tally.failures) >= MAX_FAILURES:
            break
        level = levels[number % len(levels)]
        play_one(level, seed, tally, closer=number % CLOSER_EVERY < len(levels))
    tally.cpu_s = time.process_time() - start
    return tally


def play_one(level: str, seed: int, tally: Tally, closer: bool) -> None:
    """Play the world of a seed and count it."""
    world = LEVELS[level](SeedDraw(seed))
    try:
        records = compare(world)
        if closer:
            look_closer(world, records, tally.features)
        else:
            look_for_q7(world, records, tally.features)
    except Exception as error:
        tally.failures.append(failure_of(level, seed, world, error))
        return
    tally.worlds[level] += 1
    tally.calls[level] += len(records)
    tally.steps += sum(r.asked[0] == "schedule" for r in records)
    count(world, records, tally.features)


def failure_of(
    level: str, seed: int, world: World, error: Exception, compare: Compare = compare
) -> Failure:
    told = str(error) if isinstance(error, Difference) else traceback.format_exc(limit=-8)
    smaller = shrink(world, Fails(type(error), time.monotonic() + SHRINK_S, compare))
    try:
        compare(smaller)
    except Exception as again:
        told = str(again) if isinstance(again, Difference) else told
    return Failure(level, seed, told, smaller.dumps())


class Fails:
    """Tells whether a world fails in the same way; remembers, and gives up after a while."""

    def __init__(self, kind: type[Exception], end: float, compare: Compare = compare):
        self.kind, self.end, self.compare = kind, end, compare
        self.known: dict[str, bool] = {}

    def __call__(self, world: World) -> bool:
        key = world.dumps()
        if key not in self.known:
            if time.monotonic() >= self.end:
                return False
            self.known[key] = self._fails(world)
        return self.known[key]

    def _fails(self, world: World) -> bool:
        try:
            self.compare(world)
        except Exception as error:
            return type(error) is self.kind
        return False
