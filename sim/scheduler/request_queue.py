"""Waiting requests, in the order in which they are to be admitted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Protocol

from sim.request import Request


class RequestQueue(Protocol):
    """What both queues can do. Source: spec/manager.md 6.2."""

    def add_request(self, request: Request) -> None:
        """Put a request where it belongs."""

    def prepend_request(self, request: Request) -> None:
        """Put a request before all others, if the policy lets it."""

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Prepend one after the other, so that their order is reversed."""

    def peek_request(self) -> Request:
        """Return the first request; IndexError if there is none."""

    def pop_request(self) -> Request:
        """Remove and return the first request; IndexError if there is none."""

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove requests wherever they stand; those that are not here are ignored."""

    def __len__(self) -> int:
        """Return how many wait."""

    def __iter__(self) -> Iterator[Request]:
        """Iterate in the order of admission, taking nothing away."""


class FCFSRequestQueue:
    """First come, first served; a preempted request goes before all others.

    Source: spec/manager.md 6.2. Cost: O(1) each, removal from the middle included.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def add_request(self, request: Request) -> None:
        """Append a request."""
        self._requests[request.request_id] = request

    def prepend_request(self, request: Request) -> None:
        """Put a request before all others."""
        self._requests[request.request_id] = request
        self._requests.move_to_end(request.request_id, last=False)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Prepend one after the other, so that their order is reversed."""
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        """Return the first request; IndexError if there is none."""
        if not self._requests:
            raise IndexError("peek from an empty queue")
        return next(iter(self._requests.values()))

    def pop_request(self) -> Request:
        """Remove and return the first request; IndexError if there is none."""
        if not self._requests:
            raise IndexError("pop from an empty queue")
        return self._requests.popitem(last=False)[1]

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove requests wherever they stand; those that are not here are ignored."""
        for request in requests:
            self._requests.pop(request.request_id, None)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())
