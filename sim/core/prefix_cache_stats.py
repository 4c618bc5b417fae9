"""How much of what was asked for was found in the cache."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class PrefixCacheStats:
    """Tokens asked for and found, per lookup: each scheduling attempt counts again (Q5).

    ``reset`` says that the cache was emptied in the meantime. Source: spec/manager.md 5.5.
    """

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0
    reset: bool = False

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """Count one lookup of a request of ``num_tokens`` known tokens."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class CachingMetrics:
    """The hit rate of the latest ``max_recent_requests`` requests, preempted ones left out.

    Source: spec/manager.md 5.5 (vLLM 0.25.1 ``CachingMetrics``).
    """

    def __init__(self, max_recent_requests: int = 1000):
        self.max_recent_requests = max_recent_requests
        self._recent: deque[tuple[int, int, int]] = deque()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._recent.clear()
        self._requests = self._queries = self._hits = 0

    def observe(self, stats: PrefixCacheStats) -> None:
        """Add what was drained from a manager; the oldest entries go when there are too many."""
        if stats.reset:
            self.reset()
        if not stats.requests:
            return
        self._add((stats.requests, stats.queries, stats.hits), 1)
        while len(self._recent) > 1 and self._requests > self.max_recent_requests:
            self._add(self._recent.popleft(), -1)

    def _add(self, counts: tuple[int, int, int], sign: int) -> None:
        if sign > 0:
            self._recent.append(counts)
        self._requests += sign * counts[0]
        self._queries += sign * counts[1]
        self._hits += sign * counts[2]

    @property
    def empty(self) -> bool:
        """True if nothing was observed since the last reset."""
        return not self._recent

    @property
    def hit_rate(self) -> float:
        """Tokens found per token asked for, 0 if none was."""
        return self._hits / self._queries if self._queries else 0.0
