"""The allocation part of the design text: cases 1 to 5 and the memory layout."""

from __future__ import annotations

from collections.abc import Callable

from sim.examples.allocation.irregular_pattern import irregular_pattern
from sim.examples.allocation.kv_sharing import kv_sharing
from sim.examples.allocation.memory_layout import memory_layout
from sim.examples.allocation.recurrent_states import recurrent_states
from sim.examples.allocation.regular_pattern import regular_pattern
from sim.examples.allocation.toy_model import toy_model
from sim.examples.example import Example

ALLOCATION: tuple[Callable[[], Example], ...] = (
    toy_model,
    regular_pattern,
    irregular_pattern,
    recurrent_states,
    kv_sharing,
    memory_layout,
)
