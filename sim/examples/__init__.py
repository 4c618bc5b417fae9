"""The original text's worked examples, executed: printed, drawn, and checked."""

from __future__ import annotations

from collections.abc import Callable

from sim.examples.allocation import ALLOCATION
from sim.examples.example import Check, Example
from sim.examples.figures import save_figures
from sim.registry import Registry

__all__ = ["EXAMPLES", "Check", "Example", "save_figures"]

EXAMPLES: Registry[tuple[Callable[[], Example], ...]] = Registry(
    "kvsim examples", {"allocation": ALLOCATION}
)
