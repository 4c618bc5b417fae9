"""Stack distances: how large a cache must be so that a block is still there.

With LRU a cache of C blocks holds the C blocks that were touched last, whatever C is: the cache of
a smaller capacity is contained in that of a larger one, and it holds block b exactly if fewer than
C other blocks were touched since b was. So one pass that notes how many they are, the depth of b in
the stack, gives the hits at every capacity.
Source: Mattson, Gecsei, Slutz, Traiger, IBM Systems Journal 9(2), 1970.

A definition says which touches there are and when depth is taken (docs/curve.md). None of them
lets what is touched depend on what was found, so the property holds for each, also for a request
longer than the cache that pushes its own blocks out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.curve.blocks import Batch
from sim.curve.stack_distances_compiled import (
    END,
    NUM_HOLES,
    Stack,
    access_depths,
    leading_depths,
)
from sim.registry import Registry

SMALLEST = 1 << 16
"""Positions that a stack begins with."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What counts as a hit, and in which order a request touches its blocks."""

    name: str
    summary: str
    depths: Callable[[Stack, Batch, np.ndarray], None]


def _root_first(stack: Stack, batch: Batch, depths: np.ndarray) -> None:
    leading_depths(stack, batch.ids, batch.starts, batch.num_lookups, False, depths)


def _leaf_first(stack: Stack, batch: Batch, depths: np.ndarray) -> None:
    leading_depths(stack, batch.ids, batch.starts, batch.num_lookups, True, depths)


def _per_access(stack: Stack, batch: Batch, depths: np.ndarray) -> None:
    access_depths(stack, batch.ids, batch.starts, batch.num_lookups, depths)


DEFINITIONS: Registry[Definition] = Registry(
    "definition",
    {
        d.name: d
        for d in (
            Definition(
                "leaf_first",
                "hit: the leading run found before the request touches anything; its last block "
                "is touched first, its first block last, as engines free blocks",
                _leaf_first,
            ),
            Definition(
                "root_first",
                "hit: the same leading run; its first block is touched first, its last block last",
                _root_first,
            ),
            Definition(
                "per_access",
                "hit: each block for itself, at the instant of its touch, first block first",
                _per_access,
            ),
        )
    },
)


class StackDistances:
    """The LRU stack of all blocks that came so far.

    Cost: O(log positions) for a block that was there before, O(1) for a new one. Memory: 8 bytes
    for each distinct block and 4 to 8 for a position; positions are renumbered when they run out,
    so there are at most a few for each distinct block, however long the trace is.
    """

    def __init__(self, definition: Definition):
        self._definition = definition
        self._stack = Stack(
            np.zeros(SMALLEST, np.int64), np.zeros(SMALLEST, np.int32), np.zeros(2, np.int64)
        )

    def depths(self, batch: Batch) -> np.ndarray:
        """Serve the requests of a batch; return the least capacity at which each block is a hit.

        Returns
        -------
        array, shape (len(batch.ids),) [blocks]; 0: a hit at no capacity, or not looked up
        """
        self._make_room(batch)
        depths = np.zeros(len(batch.ids), np.int64)
        self._definition.depths(self._stack, batch, depths)
        return depths

    def _make_room(self, batch: Batch) -> None:
        last, holes, counters = self._stack
        num_ids = int(batch.ids.max(initial=-1)) + 1
        if num_ids > len(last):
            last = np.concatenate([last, np.zeros(max(num_ids, len(last)), np.int64)])
        if counters[END] + len(batch.ids) >= len(holes):
            holes = _renumber(last, counters, len(batch.ids))
        self._stack = Stack(last, holes, counters)


def _renumber(last: np.ndarray, counters: np.ndarray, num_touches: int) -> np.ndarray:
    """Close the holes, blocks keep their order; return a tree without holes, with room for more."""
    used = np.flatnonzero(last)
    is_there = np.zeros(int(counters[END]) + 1, bool)
    is_there[last[used]] = True
    last[used] = np.cumsum(is_there)[last[used]]
    counters[END], counters[NUM_HOLES] = len(used), 0
    return np.zeros(max(SMALLEST, 2 * (len(used) + num_touches)), np.int32)
