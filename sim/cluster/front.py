"""Where requests enter a cluster: the router is asked, and what it may know is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sim.cluster.prefix_index import PrefixIndex
from sim.cluster.router import Arrival, Load, Router
from sim.errors import ConfigError
from sim.request import RequestSpec, Submission

NamePrefixes = Callable[[RequestSpec], Sequence[int]]


class Replica(Protocol):
    """What the front needs of an engine."""

    def submit(self, spec: RequestSpec) -> Submission:
        """Hand a request to the engine now."""


class Routed:
    """One request that was sent to a replica; expected_tokens is what the index promised."""

    __slots__ = ("arrival_ns", "expected_tokens", "replica", "request_id")

    def __init__(self, request_id: str, arrival_ns: int, replica: int, expected_tokens: int):
        self.request_id = request_id
        self.arrival_ns = arrival_ns
        self.replica = replica
        self.expected_tokens = expected_tokens


class RoutedSubmission(Submission):
    """What a workload gets: its replica's submission, which notes that somebody waits for it."""

    __slots__ = ("_inner", "_note")

    def __init__(self, inner: Submission, note: Callable[[str], None]):
        self.spec = inner.spec
        self._inner = inner
        self._note = note

    @property
    def first_token(self) -> Any:
        """The event of the first output token."""
        self._note(self.spec.request_id)
        return self._inner.first_token

    @property
    def done(self) -> Any:
        """The event of its end."""
        self._note(self.spec.request_id)
        return self._inner.done

    def abort(self) -> None:
        """Ask its replica to end it; too late is no error."""
        self._inner.abort()


class Front:
    """``submit`` for workloads: one replica gets the request.

    The router counts by itself what it sent and what has ended, and it sees first tokens come by:
    both at once, but behind the timed arrivals of the same instant.

    name_prefixes : identities of a request's hash blocks; asked for each one if there is an index
    """

    def __init__(
        self,
        router: Router,
        replicas: Sequence[Replica],
        clock: Callable[[], int],
        index: PrefixIndex | None = None,
        name_prefixes: NamePrefixes = lambda spec: (),
    ):
        self.router = router
        self.routed: list[Routed] = []
        self._replicas = replicas
        self._loads = [Load() for _ in replicas]
        self._clock = clock
        self._index = index
        self._name_prefixes = name_prefixes
        self._unfinished: set[str] = set()
        self._waited_for: set[str] = set()

    @property
    def is_waited_for(self) -> bool:
        """Whether a workload waits for something of a request that has not ended."""
        return bool(self._waited_for)

    def submit(self, spec: RequestSpec) -> Submission:
        """Send a request to the replica that the router chooses.

        Raises ConfigError if a request with this id has not ended, or for an answer of the router
        that is not the number of a replica.
        """
        if spec.request_id in self._unfinished:
            raise ConfigError.one("request_id", spec.request_id, "an id that is not in use")
        arrival = self._arrival(spec)
        replica = self._chosen(arrival)
        expected = arrival.cached_tokens[replica]
        self.routed.append(Routed(spec.request_id, arrival.now_ns, replica, expected))
        submission = self._replicas[replica].submit(spec)
        self._count(submission, self._loads[replica], spec.num_prompt_tokens - expected)
        return RoutedSubmission(submission, self._note)

    def _note(self, request_id: str) -> None:
        if request_id in self._unfinished:
            self._waited_for.add(request_id)

    def _arrival(self, spec: RequestSpec) -> Arrival:
        cached, sizes = [0] * len(self._replicas), [0] * len(self._replicas)
        if self._index is not None:
            prefix_ids = self._name_prefixes(spec)
            cached = self._index.cached_tokens(prefix_ids, spec.num_prompt_tokens)
            sizes = self._index.num_blocks()
        return Arrival(spec, self._clock(), self._loads, cached, sizes)

    def _chosen(self, arrival: Arrival) -> int:
        replica = self.router.choose(arrival)
        if replica not in arrival.replicas:
            allowed = f"the number of a replica, 0 to {len(self._replicas) - 1}"
            raise ConfigError.one(f"router {type(self.router).__name__}", replica, allowed)
        return replica

    def _count(self, submission: Submission, load: Load, num_prefill: int) -> None:
        """Count a request until it ends, and its prefill until its first token."""
        spec = submission.spec
        waiting = [num_prefill]

        def started() -> None:
            load.num_prefill_tokens -= waiting[0]
            waiting[0] = 0

        def ended() -> None:
            started()
            load.num_requests -= 1
            load.num_prompt_tokens -= spec.num_prompt_tokens
            self._unfinished.discard(spec.request_id)
            self._waited_for.discard(spec.request_id)

        load.num_requests += 1
        load.num_prompt_tokens += spec.num_prompt_tokens
        load.num_prefill_tokens += num_prefill
        self._unfinished.add(spec.request_id)
        _when(submission.done, ended)
        _when(submission.first_token, started)


def _when(event: Any, action: Callable[[], None]) -> None:
    """Do something when a SimPy event is processed, which may have been before."""
    if event.callbacks is None:
        action()
    else:
        event.callbacks.append(lambda _: action())
