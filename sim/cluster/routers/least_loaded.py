"""The replica with the least unfinished work, counted by the router itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sim.cluster.router import Arrival, Load, Router, RouterEntry
from sim.config import Strict

_COUNTS: dict[str, Callable[[Load], int]] = {
    "requests": lambda load: load.num_requests,
    "prompt_tokens": lambda load: load.num_prompt_tokens,
    "prefill_tokens": lambda load: load.num_prefill_tokens,
}


class LeastLoadedParams(Strict):
    """Parameters of the router ``least_loaded``.

    by
        what is counted: ``requests`` that have not ended; ``prompt_tokens`` of these;
        ``prefill_tokens``: prompt tokens of those that have no first token yet
    """

    by: Literal["requests", "prompt_tokens", "prefill_tokens"] = "requests"


class LeastLoaded(Router):
    """The replica with the smallest count; the lowest number among equals."""

    def __init__(self, params: LeastLoadedParams):
        self._count = _COUNTS[params.by]

    def choose(self, arrival: Arrival) -> int:
        """Return the replica with the smallest count."""
        counts = [self._count(load) for load in arrival.loads]
        return counts.index(min(counts))


LEAST_LOADED = RouterEntry(
    "least_loaded",
    "the replica with the fewest unfinished requests (or tokens)",
    LeastLoadedParams,
    lambda params, num_replicas: LeastLoaded(params),
)
