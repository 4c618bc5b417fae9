"""Which blocks of a group a hit needs, by attention kind; one line per kind.

Every kind needs a contiguous run of blocks up to the right edge of the hit; they differ in where
it begins. Kinds that are not in the table need all blocks from the first one on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from sim.units import cdiv

FirstNeeded = Callable[[int], int]
"""Right edge of a hit in tokens, above 0 -> index of the first block that it needs."""


def first_needed(spec: KVCacheSpec, block_size: int) -> FirstNeeded:
    """Return the rule of a spec. Source: spec/manager.md 3.2 to 3.5."""
    for kind in type(spec).__mro__:
        if kind in NEEDS:
            return NEEDS[kind](spec, block_size)
    return lambda edge: 0


def _window(spec: Any, block_size: int) -> FirstNeeded:
    need = max(cdiv(spec.sliding_window - 1, block_size), 1)
    return lambda edge: max(edge // block_size - need, 0)


def _state(spec: Any, block_size: int) -> FirstNeeded:
    return lambda edge: edge // block_size - 1


def _chunk(spec: Any, block_size: int) -> FirstNeeded:
    size = spec.attention_chunk_size
    return lambda edge: edge // size * size // block_size


NEEDS: dict[type[KVCacheSpec], Callable[[Any, int], FirstNeeded]] = {
    SlidingWindowSpec: _window,
    MambaSpec: _state,
    ChunkedLocalAttentionSpec: _chunk,
}
