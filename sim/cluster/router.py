"""What a router is: what it may know of a request and of the replicas, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.config import Strict
from sim.request import RequestSpec


@dataclass(slots=True)
class Load:
    """What was sent to a replica and has not ended, as its router counts it.

    num_prompt_tokens : prompt tokens of these requests
    num_prefill_tokens : prompt tokens of those without a first token, less what the index promised
        of each: what is still to be computed, as far as the router can know
    """

    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_prefill_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """All that a router sees when it chooses. It changes nothing of it.

    loads : by replica
    cached_tokens : by replica, leading prompt tokens that are cached there as the index knows;
        zeros for a router without an index
    num_indexed_blocks : by replica, blocks that the index knows of
    """

    spec: RequestSpec
    now_ns: int
    loads: Sequence[Load]
    cached_tokens: Sequence[int]
    num_indexed_blocks: Sequence[int]

    @property
    def replicas(self) -> range:
        """The numbers to choose from."""
        return range(len(self.loads))


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """What index a router wants to be kept.

    delay_ns : time until an event of a replica is known
    groups : ``all``: a prefix counts as far as every KV cache group could use it; ``full``: groups
        that need the whole prefix are asked alone, as by an index that knows one chain of blocks
    """

    delay_ns: int = 0
    groups: str = "all"


class Router:
    """Chooses a replica for each request; may remember what it chose, and draws nothing at random.

    index : set where ``Arrival.cached_tokens`` is wanted; the replicas then tell what they cache
    """

    index: IndexSettings | None = None

    def choose(self, arrival: Arrival) -> int:
        """Return the number of a replica, from 0."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RouterEntry:
    """One line of the table: ``build(params, num_replicas)`` returns a router for one run."""

    name: str
    summary: str
    params: type[Strict]
    build: Callable[[Any, int], Router]
