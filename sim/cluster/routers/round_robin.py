"""One replica after the other."""

from __future__ import annotations

from sim.cluster.router import Arrival, Router, RouterEntry
from sim.config import Strict


class RoundRobinParams(Strict):
    """The router ``round_robin`` has no parameters."""


class RoundRobin(Router):
    """The first request goes to replica 0, each further one to the next, after the last to 0."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, arrival: Arrival) -> int:
        """Return the replica whose turn it is."""
        chosen = self._next % len(arrival.loads)
        self._next = chosen + 1
        return chosen


ROUND_ROBIN = RouterEntry(
    "round_robin",
    "one replica after the other",
    RoundRobinParams,
    lambda params, num_replicas: RoundRobin(),
)
