"""Random worlds on both engines: calls of managers and schedulers, and whole engines with clients.

``python -m tests.compiled`` plays more of them.
"""

from __future__ import annotations

import pytest

from sim.jit import is_available
from tests.compiled.search import DRAWN, Tally, play_one
from tests.differential.search import seeds

NUM_WORLDS = {"manager": 80, "scheduler": 50, "engine": 40}
NUM_COMPILED = {"manager": 300, "scheduler": 300, "engine": 400}
REACHED = {
    "manager": [
        "hit with null entries",
        "duplicate content",
        "content evicted on allocation",
        "coordinator: unitary",
        "coordinator: no prefix cache",
        "retention: an interval",
    ],
    "scheduler": [
        "policy: priority",
        "scheduler: two steps in flight",
        "scheduler: preemption",
        "scheduler: resumed",
        "scheduler: output for a preempted request",
        "scheduler: head of the queue refused",
        "scheduler: aborted while preempted",
        "content evicted on allocation",
        "align hint (uncached common prefix) above 0",
    ],
    "engine": [f"engine: {outcome}" for outcome in ("finished", "aborted", "rejected", "stuck")],
}


def played(level: str, count: int, base: int) -> Tally:
    """Play the worlds of so many seeds; stop at the first that fails."""
    tally = Tally()
    for _, seed in zip(range(count), seeds(base, 0, 1), strict=False):
        play_one(level, seed, tally)
        if tally.failures:
            break
    return tally


def check(tally: Tally, level: str, count: int) -> None:
    assert [f"{f.told}\n{f.world}" for f in tally.failures] == []
    assert tally.worlds[level] > 0.75 * count
    assert [feature for feature in REACHED[level] if not tally.features[feature]] == []


@pytest.mark.parametrize("level", DRAWN)
def test_worlds_are_the_same_on_both_engines(level):
    count = NUM_WORLDS[level]
    check(played(level, count, base=1), level, count)


@pytest.mark.compiled
@pytest.mark.skipif(not is_available(), reason="Numba is missing or switched off")
@pytest.mark.parametrize("level", DRAWN)
def test_worlds_are_the_same_when_it_is_compiled(level):
    count = NUM_COMPILED[level]
    check(played(level, count, base=2), level, count)
