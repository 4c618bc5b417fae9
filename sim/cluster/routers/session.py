"""Requests of one session go to one replica, whatever it holds and whoever is busy."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from sim.cluster.router import Arrival, Router, RouterEntry
from sim.config import Strict
from sim.request import RequestSpec, Span, merge_spans


class SessionParams(Strict):
    """Parameters of the router ``session``.

    prefix_tokens : tokens
        a request without a session is given a replica by its first so many prompt tokens, so that
        equal beginnings meet; 0: by its own id
    """

    prefix_tokens: Annotated[int, Field(ge=0, le=2**31)] = 0


class Session(Router):
    """A hash of the session modulo the number of replicas: nothing is remembered.

    The hash is the same in every process and run. Another number of replicas moves most sessions.
    """

    def __init__(self, params: SessionParams):
        self._prefix_tokens = params.prefix_tokens

    def choose(self, arrival: Arrival) -> int:
        """Return the replica of the request's session."""
        digest = blake2b(self._key(arrival.spec).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % len(arrival.loads)

    def _key(self, spec: RequestSpec) -> str:
        if spec.session_id is not None:
            return f"session {spec.session_id}"
        if self._prefix_tokens:
            beginning = merge_spans(_first(spec.prompt, self._prefix_tokens))
            return f"prefix {[tuple(span) for span in beginning]}"
        return f"request {spec.request_id}"


def _first(spans: tuple[Span, ...], num_tokens: int) -> Iterator[Span]:
    for source, start, length in spans:
        yield Span(source, start, min(length, num_tokens))
        num_tokens -= length
        if num_tokens <= 0:
            return


SESSION = RouterEntry(
    "session",
    "a fixed replica for each session, by a hash",
    SessionParams,
    lambda params, num_replicas: Session(params),
)
