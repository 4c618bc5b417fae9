"""Makes a failing world small: Hypothesis chooses what to leave out."""

from __future__ import annotations

import copy
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from tests.differential.world import World

ROUNDS = 4
KEPT = st.integers(0, 60)  # 0 leaves something out, so that Hypothesis prefers to


@st.composite
def smaller_worlds(draw: st.DrawFn, world: World) -> World:
    """Return the world without some of its operations and with some smaller numbers."""
    smaller = copy.deepcopy(world)
    smaller.ops = [[op[0], *map(_reduced(draw), op[1:])] for op in world.ops if draw(KEPT)]
    for request in smaller.requests:
        for span in request["prompt"]:
            if not draw(KEPT):
                span[2] = max(1, span[2] // 2)
        for key in ("skip", "salt", "lora", "priority", "arrival", "stop_after", "accepted"):
            if key in request and not draw(KEPT):
                del request[key]
    while smaller.requests and not draw(KEPT):
        smaller.requests.pop()
    return smaller


def _reduced(draw: st.DrawFn) -> Callable[[int], int]:
    return lambda number: number if not number or draw(KEPT) else 0


def shrink(world: World, fails: Callable[[World], bool], max_examples: int = 600) -> World:
    """Return a small world that fails too; the same one if nothing can be left out."""
    chosen = settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    for _ in range(ROUNDS):
        try:
            smaller = find(smaller_worlds(world), fails, settings=chosen)
        except NoSuchExample:
            return world
        if smaller == world:
            return world
        world = smaller
    return world
