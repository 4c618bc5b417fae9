"""The replica that has least left to compute: long cached prefixes against waiting prompts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.cluster.router import Arrival, IndexSettings, Router, RouterEntry
from sim.config import Strict
from sim.units import NS_PER_MS


class PrefixAwareParams(Strict):
    """Parameters of the router ``prefix_aware``.

    delay_ms : milliseconds
        until the index knows what a replica registered or evicted
    load_weight : tokens per token
        how many cached tokens one token waiting for its prefill outweighs; 0: only the cache counts
    groups
        ``all``: a prefix counts as far as every KV cache group could use it; ``full``: as far as
        the groups that keep all of it have it, whatever windows and states need
    """

    delay_ms: Annotated[float, Field(ge=0, le=3.6e6)] = 10.0
    load_weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    groups: Literal["all", "full"] = "all"


class PrefixAware(Router):
    """The replica with the highest score: cached tokens - load_weight x tokens to prefill.

    Cached tokens are those of this prompt that the index knows on the replica; tokens to prefill
    are those of the requests that it was sent and that have no first token yet, less what the index
    promised of each. With a weight of 1 that is the replica that has the fewest tokens to compute
    before this request's first one. Among equals the one with fewer unfinished requests, then
    the one of which the index knows fewer blocks, then the lowest number.
    """

    def __init__(self, params: PrefixAwareParams):
        self.index = IndexSettings(round(params.delay_ms * NS_PER_MS), params.groups)
        self._weight = params.load_weight

    def choose(self, arrival: Arrival) -> int:
        """Return the replica with the highest score."""
        return max(arrival.replicas, key=lambda replica: self._rank(arrival, replica))

    def _rank(self, arrival: Arrival, replica: int) -> tuple[float, int, int, int]:
        load = arrival.loads[replica]
        score = arrival.cached_tokens[replica] - self._weight * load.num_prefill_tokens
        return score, -load.num_requests, -arrival.num_indexed_blocks[replica], -replica


PREFIX_AWARE = RouterEntry(
    "prefix_aware",
    "the replica with least left to compute, by an index of what each one caches",
    PrefixAwareParams,
    lambda params, num_replicas: PrefixAware(params),
)
