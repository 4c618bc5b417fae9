"""Hits as a function of capacity, exact at every capacity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.curve.blocks import Batch, sums_before
from sim.curve.stack_distances import Definition, StackDistances
from sim.curve.stack_distances_compiled import tally
from sim.curve.totals import Totals, block_tokens


class Histogram:
    """Blocks and tokens by the least capacity at which they are hits."""

    def __init__(self, definition: Definition):
        self.num_lookups = 0
        self.num_lookup_tokens = 0
        self.num_distinct = 0
        self._distances = StackDistances(definition)
        self._hits = np.zeros(1, np.int64)
        self._tokens = np.zeros(1, np.int64)

    def add(self, batch: Batch, tokens: np.ndarray) -> np.ndarray:
        """Serve the requests of a batch; return the depths of its blocks (``StackDistances``).

        Ids are dense: of n distinct blocks so far none has a number of n or more.
        tokens : int64 (blocks,), prompt tokens of each block
        """
        depths = self._distances.depths(batch)
        looked_up = batch.is_looked_up
        self.num_lookups += int(looked_up.sum())
        self.num_lookup_tokens += int(tokens[looked_up].sum())
        self.num_distinct = max(self.num_distinct, int(batch.ids.max(initial=-1)) + 1)
        self._make_room()
        tally(depths, tokens, self._hits, self._tokens)
        return depths

    def _make_room(self) -> None:
        """No depth is larger than the number of distinct blocks."""
        missing = self.num_distinct + 1 - len(self._hits)
        if missing > 0:
            more = np.zeros(max(missing, len(self._hits)), np.int64)
            self._hits = np.concatenate([self._hits, more])
            self._tokens = np.concatenate([self._tokens, more])

    @property
    def hits(self) -> np.ndarray:
        """The hits at each capacity from 0 [blocks]; int64, constant behind its end."""
        sums: np.ndarray = np.cumsum(self._hits)
        return sums

    @property
    def hit_tokens(self) -> np.ndarray:
        """The tokens of the hits at each capacity from 0 [tokens]; int64."""
        sums: np.ndarray = np.cumsum(self._tokens)
        return sums


class HitCurve:
    """Hits of one chain of blocks at every capacity; grows as requests come.

    block_size : tokens of a block; a last one that is listed may be shorter
    """

    def __init__(self, definition: Definition, block_size: int):
        self.block_size = block_size
        self.totals = Totals()
        self._histogram = Histogram(definition)

    def add(self, batch: Batch) -> np.ndarray:
        """Serve the requests of a batch, whose ids are dense; return the depths of its blocks."""
        tokens = block_tokens(batch, self.block_size)
        self.totals.add(batch, tokens)
        return self._histogram.add(batch, tokens)

    @property
    def num_distinct(self) -> int:
        """Distinct blocks: with so many nothing is ever evicted [blocks]."""
        return self._histogram.num_distinct

    def hits(self, capacities: Sequence[int]) -> np.ndarray:
        """Return the hits at each capacity [blocks]; int64 (capacities,)."""
        return _at(self._histogram.hits, capacities)

    def hit_tokens(self, capacities: Sequence[int]) -> np.ndarray:
        """Return the tokens of the hits at each capacity [tokens]; int64 (capacities,)."""
        return _at(self._histogram.hit_tokens, capacities)


def _at(sums: np.ndarray, capacities: Sequence[int]) -> np.ndarray:
    found: np.ndarray = sums[np.clip(np.array(capacities, np.int64), 0, len(sums) - 1)]
    return found


def leading_hits(batch: Batch, depths: np.ndarray, capacity: int) -> np.ndarray:
    """Return the hits of each request at one capacity; int64 (requests,)."""
    hits: np.ndarray = np.diff(sums_before((depths > 0) & (depths <= capacity))[batch.starts])
    return hits
