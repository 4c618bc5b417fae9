"""The two kinds of random worlds, from a seed or from Hypothesis."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.differential.draw import Draw, HypothesisDraw
from tests.differential.manager_worlds import manager_world
from tests.differential.scheduler_worlds import scheduler_world
from tests.differential.world import World

LEVELS: dict[str, Callable[[Draw], World]] = {
    "manager": manager_world,
    "scheduler": scheduler_world,
}


@st.composite
def worlds(draw: st.DrawFn, level: str) -> World:
    """Return a strategy for worlds, which Hypothesis shrinks on its own."""
    return LEVELS[level](HypothesisDraw(draw))
