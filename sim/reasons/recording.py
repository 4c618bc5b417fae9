"""Reasons: the observer that explains every lookup of a run."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.kv_cache_manager import KVCacheManager
from sim.observer import Observer
from sim.reasons.analysis import Analyser, Lookup
from sim.reasons.history import Happening, History
from sim.reasons.tables import ReasonTables
from sim.request import Request


class Reasons(Observer):
    """Explains each lookup while it happens, keeps the one that led to an admission.

    A request that waits is looked up again whenever what it depends on has changed; of these the
    last one counts, and how many there were. Build it, hand it to the manager as its observer,
    then ``attach`` the manager; tell it the time with ``at`` before each step. A lookup costs time
    in proportion to what it lost; memory: see ``History`` and one row per stretch of lost tokens.
    """

    __slots__ = ("_analyser", "_attempts", "_eviction", "_pending", "_taken", "history", "tables")

    def __init__(self, num_groups: int):
        self.history = History(num_groups)
        self.tables = ReasonTables(num_groups)
        self._analyser: Analyser | None = None
        self._pending: dict[str, Lookup] = {}
        self._attempts: dict[str, int] = {}
        # The last loss and one of its blocks; if it was an allocation, until its owner is told.
        self._eviction: tuple[Happening, int] | None = None
        self._taken: tuple[Happening, int] | None = None

    def attach(self, manager: KVCacheManager) -> None:
        """Take the manager whose lookups are explained."""
        self._analyser = Analyser(manager, self.history)

    def at(self, now_ns: int, step: int) -> None:
        """A step is about to be scheduled."""
        self.history.now_ns, self.history.step = now_ns, step

    def finish(self) -> ReasonTables:
        """Return the tables; lookups that led to no admission are marked."""
        for request_id in list(self._pending):
            self._keep(request_id, is_admitted=False)
        return self.tables

    # -- lookups -----------------------------------------------------------------------------
    def looked_up(self, request: Request, max_length: int, num_hit: int) -> None:
        """Explain the lookup now: the index will have changed when it is known to count."""
        if self._analyser is None:
            raise RuntimeError("Reasons.attach(manager) must come before the first lookup")
        request_id = request.request_id
        self._pending[request_id] = self._analyser.lookup(request, max_length, num_hit)
        self._attempts[request_id] = self._attempts.get(request_id, 0) + 1

    def table_append(self, request_id: str, group_id: int, block_ids: Sequence[int]) -> None:
        """Blocks that were taken just now went to this request; it is admitted."""
        if self._taken is not None and self._taken[1] in block_ids:
            event = self._taken[0]
            event.request_id, event.group_id = request_id, group_id
            self._taken = None
        if request_id in self._pending:
            self._keep(request_id, is_admitted=True)

    def _keep(self, request_id: str, is_admitted: bool) -> None:
        self.tables.add(self._pending.pop(request_id), self._attempts.pop(request_id), is_admitted)

    # -- content ----------------------------------------------------------------------------
    def allocated(self, block_ids: Sequence[int], group_id: int) -> None:
        """Count what leaves the free queue: the distance between uses is measured in it."""
        self.history.num_taken += len(block_ids)
        if self._eviction is not None and self._eviction[1] in block_ids:
            self._taken, self._eviction = self._eviction, None

    def evicted(
        self, block_ids: Sequence[int], group_ids: Sequence[int], prefix_ids: Sequence[int]
    ) -> None:
        """Note the loss; whose allocation it was is told next."""
        self._eviction = self.history.evict(group_ids, prefix_ids), block_ids[0]

    def registered(
        self,
        group_id: int,
        request_id: str,
        first_idx: int,
        last_idx: int,
        parent_prefix_id: int,
        block_ids: Sequence[int],
        prefix_ids: Sequence[int],
    ) -> None:
        """Note who stored this content."""
        self.history.store(group_id, request_id, prefix_ids)

    def passed_over(
        self,
        group_id: int,
        request_id: str,
        prefix_ids: Sequence[int],
        masked: Sequence[bool],
    ) -> None:
        """Note that this content was computed and not registered, and why."""
        self.history.leave_out(group_id, request_id, prefix_ids, masked)

    def cleared(self) -> None:
        """Note the reset."""
        self.history.reset()
