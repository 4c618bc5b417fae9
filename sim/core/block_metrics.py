"""How long blocks live, lie idle and wait for their next use, from a sample of allocations."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sim.observer import Observer

_NS = 10**9
_MS = 10**6
_REMEMBERED = 4
BUCKETS_NS = (
    *(n * _MS for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _NS for n in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800)),
)
"""Upper bounds, inclusive, of the histograms. Source: spec/manager.md 7.3."""


class KVCacheEvictionEvent(NamedTuple):
    """One sampled block that was handed out again or evicted by id, in whole nanoseconds.

    lifetime_ns : since it was handed out
    idle_ns : since its last hit, or since it was handed out
    reuse_gaps_ns : between its last hits, at most three
    """

    lifetime_ns: int
    idle_ns: int
    reuse_gaps_ns: tuple[int, ...]


class Histogram:
    """Counts of durations up to each bound of ``BUCKETS_NS``, as Prometheus has them."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_NS) + 1)
        self.sum_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS_NS, duration_ns)] += 1
        self.sum_ns += duration_ns

    def summary(self) -> dict[str, Any]:
        """Return count, sum in seconds, and cumulative counts by upper bound in seconds."""
        bounds = [f"{bound / _NS:g}" for bound in BUCKETS_NS] + ["+Inf"]
        total, buckets = 0, {}
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            buckets[bound] = total
        return {"count": total, "sum": self.sum_ns / _NS, "buckets": buckets}


class _Residence:
    """The life of one block so far: when it began, and its last hits."""

    __slots__ = ("birth_ns", "hits_ns", "last_ns")

    def __init__(self, now_ns: int):
        self.birth_ns = self.last_ns = now_ns
        self.hits_ns: deque[int] = deque(maxlen=_REMEMBERED)


class BlockMetrics(Observer):
    """Follows a random sample of allocated blocks until they are handed out again.

    sample_rate : chance of an allocated block to be followed, above 0, at most 1
    random : numbers in [0, 1), one per allocated block
    enable_caching : without caching the reference counts no end where a block is handed out again

    ``at`` tells the time. Source: spec/manager.md 7.2 (vLLM 0.25.1 ``KVCacheMetricsCollector``).
    """

    __slots__ = (
        "_events", "_now_ns", "_random", "_residences", "enable_caching", "idle", "lifetime",
        "num_sampled", "reuse_gap", "sample_rate",
    )  # fmt: skip

    def __init__(
        self, sample_rate: float, random: Callable[[], float], enable_caching: bool = True
    ):
        if not 0 < sample_rate <= 1:
            raise ValueError(f"sample_rate is {sample_rate}, must be above 0 and at most 1")
        self.sample_rate = sample_rate
        self.enable_caching = enable_caching
        self.num_sampled = 0
        self.lifetime, self.idle, self.reuse_gap = Histogram(), Histogram(), Histogram()
        self._random = random
        self._now_ns = 0
        self._residences: dict[int, _Residence] = {}
        self._events: list[KVCacheEvictionEvent] = []

    # -- time --------------------------------------------------------------------------------
    def at(self, now_ns: int) -> None:
        """A step begins at ``now_ns``: count what ended before."""
        self._now_ns = now_ns
        self._count(self.drain_events())

    def drain_events(self) -> list[KVCacheEvictionEvent]:
        """Return the ends since the last call."""
        events, self._events = self._events, []
        return events

    def _count(self, events: Sequence[KVCacheEvictionEvent]) -> None:
        for event in events:
            self.lifetime.add(event.lifetime_ns)
            self.idle.add(event.idle_ns)
            for gap in event.reuse_gaps_ns:
                self.reuse_gap.add(gap)

    # -- what the pool tells -------------------------------------------------------------------
    def allocated(self, block_ids: Sequence[int], group_id: int) -> None:
        """End the residences of these blocks, then begin those that are sampled."""
        random, rate = self._random, self.sample_rate
        for block_id in block_ids:
            if self.enable_caching:
                self.evicted_by_id(block_id)
            if random() < rate:
                self.num_sampled += 1
                self._residences[block_id] = _Residence(self._now_ns)

    def touched(self, block_ids: Sequence[int], group_id: int) -> None:
        """Note a hit of the blocks that are followed."""
        for block_id in block_ids:
            residence = self._residences.get(block_id)
            if residence is not None:
                residence.last_ns = self._now_ns
                residence.hits_ns.append(self._now_ns)

    def evicted_by_id(self, block_id: int) -> None:
        """End the residence of a block, whether it caches something or not."""
        residence = self._residences.pop(block_id, None)
        if residence is not None:
            gaps = tuple(after - before for before, after in pairwise(residence.hits_ns))
            lifetime = self._now_ns - residence.birth_ns
            idle = self._now_ns - residence.last_ns
            self._events.append(KVCacheEvictionEvent(lifetime, idle, gaps))

    def cleared(self) -> None:
        """Follow nothing any more; ends that nobody has drained are lost."""
        self._residences.clear()
        self._events.clear()

    # -- the answer ----------------------------------------------------------------------------
    def summary(self) -> dict[str, Any]:
        """Return vLLM's three histograms by name, and the size of the sample."""
        self._count(self.drain_events())
        return {
            "sample_rate": self.sample_rate,
            "sampled_blocks": self.num_sampled,
            "vllm:kv_block_lifetime_seconds": self.lifetime.summary(),
            "vllm:kv_block_idle_before_evict_seconds": self.idle.summary(),
            "vllm:kv_block_reuse_gap_seconds": self.reuse_gap.summary(),
        }
