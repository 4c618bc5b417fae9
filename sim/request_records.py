"""Requests as Python has them, beside the records that the compiled engine works on."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from sim.core.kv_cache_state_compiled import (
    REQUEST,
    WATCHES_END,
    WATCHES_FIRST_TOKEN,
    Manager,
    with_entries,
    with_identities,
    with_requests,
)
from sim.errors import ConfigError
from sim.request import Request, RequestStatus, Run

_MOST_PREFIX_IDS = (1 << 31) - 1
_SYNCED = (
    "num_tokens",
    "num_computed_tokens",
    "num_preemptions",
    "num_cached_tokens",
    "first_scheduled_ns",
    "first_token_ns",
    "finish_ns",
)
_synced = itemgetter(*map(REQUEST.names.index, (*_SYNCED, "status")))
_STATUS_OF = {int(status): status for status in RequestStatus}
_NUM_PREFIX_IDS = REQUEST.names.index("num_prefix_ids")


def _filled(request: Request, values: tuple[int, ...]) -> Request:
    """Return a request with the values of its record."""
    (
        request.num_tokens,
        request.num_computed_tokens,
        request.num_preemptions,
        request.num_cached_tokens,
        request.first_scheduled_ns,
        request.first_token_ns,
        request.finish_ns,
        status,
    ) = _synced(values)
    request.status = _STATUS_OF[status]
    return request


def _is_at_eos(request: Request) -> bool:
    """Whether a request ended by itself; its record says only that it has its last token."""
    if request.stop_after is None or request.status is not RequestStatus.FINISHED_LENGTH_CAPPED:
        return False
    return request.num_output_tokens >= request.stop_after


class RequestRecords:
    """Gives requests their records and their ranges of identities, and takes them back.

    ``requests[r]`` is the request of record r. Identities lie in one array; it is packed when it is
    full, so that its size follows what is live.

    orders_ids : requests that are equal otherwise are ordered by their ids (policy ``priority``)
    """

    def __init__(self, single_type_managers: Sequence[Any], orders_ids: bool = False):
        self._orders_ids = orders_ids
        self.requests: dict[int, Request] = {}
        self._records: dict[str, int] = {}
        self._free: list[int] = []
        self._num_records = 0
        self._serial = 0
        self.num_prefix_ids = 0
        """Every identity so far is below it."""
        self._end_of_ids = 0
        self._live_ids = 0
        self._sizes = {(m.block_size, m.num_speculative_blocks) for m in single_type_managers}
        self._instant: list[tuple[str, int]] = []  # requests of one arrival, by id
        self._instant_ns = -1
        self._runs: Sequence[Run] = ()
        self._num_ids = 0

    # -- room --------------------------------------------------------------------------------
    def with_room(self, m: Manager, request: Request, runs: Sequence[Run]) -> Manager:
        """Return the state with room for one more request.

        runs : its identities, which are kept for ``add``
        """
        count = highest = 0
        for first, end in runs:
            count += end - first
            highest = max(highest, end)
        if highest > _MOST_PREFIX_IDS:
            raise ConfigError.one("prefix identities", highest, f"at most {_MOST_PREFIX_IDS}")
        self._runs, self._num_ids = runs, count
        if not self._free and self._num_records == len(m.requests):
            m = with_requests(m, self._num_records + 1)
        if highest > self.num_prefix_ids:
            self.num_prefix_ids = highest
            if highest > len(m.pool.index):
                m = with_identities(m, highest)
        length = self._longest_table(request)
        if length > m.hits.shape[1]:
            m = with_entries(m, length)
        if self._end_of_ids + count > len(m.prefix_ids):
            m = self._packed(m, count)
        return m

    def _longest_table(self, request: Request) -> int:
        total = request.num_prompt_tokens + request.max_tokens + 2
        return max([-(-total // size) + extra + 1 for size, extra in self._sizes])

    def _packed(self, m: Manager, num_more: int) -> Manager:
        """Move the identities of live requests together, in a longer array if they fill half.

        Where hardly any are dead, all go to the longer one as they are.
        """
        size, end = len(m.prefix_ids), self._end_of_ids
        if 4 * self._live_ids > 3 * end:
            longer = np.zeros(4 * (size + num_more), np.uint32)
            longer[:end] = m.prefix_ids[:end]
            return m._replace(prefix_ids=longer)
        while size < 2 * (self._live_ids + num_more):
            size *= 4
        packed, end = np.zeros(size, np.uint32), 0
        for r in self.requests:
            record = m.requests[r]
            start, count = int(record.prefix_ids_start), int(record.num_prefix_ids)
            packed[end : end + count] = m.prefix_ids[start : start + count]
            record.prefix_ids_start = end
            end += count
        self._end_of_ids = end
        return m._replace(prefix_ids=packed)

    # -- requests come and go ------------------------------------------------------------------
    def add(self, m: Manager, request: Request, ends_at: int) -> int:
        """Fill a record; ``with_room`` has been called for the request."""
        if self._free:
            r = self._free.pop()
        else:
            r = self._num_records
            self._num_records += 1
        start = end = self._end_of_ids
        for first, last in self._runs:
            m.prefix_ids[end : end + last - first] = np.arange(first, last)
            end += last - first
        self._end_of_ids = end
        self._live_ids += self._num_ids
        self._serial += 1
        m.requests.view(np.ndarray)[r] = (
            self._serial,
            request.num_prompt_tokens,
            request.max_tokens,
            ends_at,
            request.num_tokens,
            0,
            0,
            0,
            0,
            request.arrival_ns,
            -1,
            -1,
            -1,
            -1,
            start,
            self._num_ids,
            request.priority,
            0,
            0,
            -1,
            -1,
            -1,
            int(RequestStatus.WAITING),
            0,
            0,
        )
        self.requests[r] = request
        self._records[request.request_id] = r
        if self._orders_ids:
            self._order(m, request, r)
        return r

    def _order(self, m: Manager, request: Request, r: int) -> None:
        """Number the requests of one instant by their ids, which the priority policy goes by."""
        if request.arrival_ns != self._instant_ns:
            self._instant_ns, self._instant = request.arrival_ns, []
        insort(self._instant, (request.request_id, r))
        m.requests.tie[[other for _, other in self._instant]] = np.arange(len(self._instant))

    def watch(self, m: Manager, request: Request, first_token: bool) -> None:
        """Flag a request whose end, or first token, is waited for; bring its times up to date."""
        r = self._records.get(request.request_id)
        if r is not None and self.requests[r] is request:
            record = m.requests[r]
            record.is_watched |= WATCHES_FIRST_TOKEN if first_token else WATCHES_END
            request.first_token_ns = int(record.first_token_ns)

    def find(self, request_id: str) -> int | None:
        """Return the record of a request that has not ended."""
        return self._records.get(request_id)

    def synced(self, m: Manager, r: int) -> Request:
        """Return a request with what its record says."""
        return _filled(self.requests[r], m.requests.view(np.ndarray)[r].item())

    def ended(self, m: Manager, ended: np.ndarray) -> list[Request]:
        """Return requests that have ended, with what their records say, which are free again."""
        requests = []
        records = m.requests.view(np.ndarray)[ended].tolist()
        for r, values in zip(ended.tolist(), records, strict=True):
            request = _filled(self.requests.pop(r), values)
            if _is_at_eos(request):
                request.status = RequestStatus.FINISHED_STOPPED
            del self._records[request.request_id]
            self._live_ids -= values[_NUM_PREFIX_IDS]
            self._free.append(r)
            if self._orders_ids and request.arrival_ns == self._instant_ns:
                self._instant.remove((request.request_id, r))
            requests.append(request)
        return requests

    # -- all of them -----------------------------------------------------------------------------
    def in_order_of_arrival(self) -> Iterator[int]:
        """Records of the requests that have not ended, in the order in which they were added."""
        return iter(list(self.requests))

    def prefix_ids(self, m: Manager) -> Iterator[np.ndarray]:
        """Yield the identities of each request that holds blocks."""
        records = m.requests[list(self.requests)]
        for record in records[records.row >= 0]:
            start = int(record.prefix_ids_start)
            yield m.prefix_ids[start : start + int(record.num_prefix_ids)]

    def num_known_tokens(self, m: Manager, to_come: Sequence[int]) -> int:
        """Tokens that are known of all requests together, but for those that are still to come."""
        there = list(self.requests.keys() - set(to_come))
        return int(m.requests.num_tokens[there].sum())
