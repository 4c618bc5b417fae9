"""Waiting requests by priority."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from sim.request import Request

_Entry = tuple[tuple[int, int, str], int, Request]

_MOST_REMOVED = 64


class PriorityRequestQueue:
    """Smallest (priority, arrival, id) first; nobody is put before others.

    Removed requests stay in the heap, unreachable, until they come to its head or are too many.

    Source: spec/manager.md 6.2. Cost: O(log n) each.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        self._num_added = 0

    def add_request(self, request: Request) -> None:
        """Put a request in its place."""
        entry = (request.sort_key, self._num_added, request)
        self._num_added += 1
        self._entries[request.request_id] = entry
        heappush(self._heap, entry)

    def prepend_request(self, request: Request) -> None:
        """Put a request in its place, which need not be the first."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put requests in their places."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Request:
        """Return the first request; IndexError if there is none."""
        if not self._entries:
            raise IndexError("peek from an empty queue")
        while self._entries.get(self._heap[0][2].request_id) is not self._heap[0]:
            heappop(self._heap)
        return self._heap[0][2]

    def pop_request(self) -> Request:
        """Remove and return the first request; IndexError if there is none."""
        request = self.peek_request()
        heappop(self._heap)
        del self._entries[request.request_id]
        return request

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove requests wherever they stand; those that are not here are ignored."""
        for request in requests:
            self._entries.pop(request.request_id, None)
        if len(self._heap) > 2 * len(self._entries) + _MOST_REMOVED:
            self._heap = sorted(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, _, request in sorted(self._entries.values()))
