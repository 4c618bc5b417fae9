"""One lookup, taken apart: what was lost, and for each group why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sim.core.kv_cache_manager import KVCacheManager
from sim.reasons.cuts import Cut, Entry, find_cuts
from sim.reasons.group_view import USABLE, blocking_blocks
from sim.reasons.history import History
from sim.reasons.losses import Losses
from sim.reasons.needs import first_needed
from sim.reasons.stretches import Stretch, beyond
from sim.request import Request


class Lookup(NamedTuple):
    """What a lookup found and lost.

    num_tokens : tokens that the request had, the last of which cannot hit
    alone : tokens that each group could have used on its own
    cuts : which groups lowered the bound, in the order of the search
    stretches : what was lost, from each group's view (``Stretch``)
    """

    request: Request
    step: int
    now_ns: int
    num_taken: int
    num_preemptions: int
    num_tokens: int
    hit: int
    alone: tuple[int, ...]
    cuts: tuple[Cut, ...]
    stretches: tuple[Stretch, ...]


class Analyser:
    """Explains lookups of one manager. Reads the index and the history, changes nothing.

    Source: ours; the rules of the search are those of spec/manager.md 3.2 to 3.5 and 4.4.
    """

    def __init__(self, manager: KVCacheManager, history: History):
        coordinator = manager.coordinator
        self._pool, self._history = manager.block_pool, history
        self._managers = coordinator.single_type_managers
        self._hash_block_size = coordinator.hash_block_size
        self._entries = _entries(coordinator)
        is_hybrid = len(self._managers) > 1
        size = coordinator.scheduler_block_size
        self._alignment = size if is_hybrid else self._managers[0].block_size
        self._needs = [first_needed(m.kv_cache_spec, m.block_size) for m in self._managers]

    def lookup(self, request: Request, max_length: int, hit: int) -> Lookup:
        """Return why a lookup that found ``hit`` of ``max_length`` tokens found no more."""
        history = self._history
        ids = [self._ids(request, g) for g in range(len(self._managers))]
        seen = self._seen(ids, max_length)
        size = self._alignment
        edges = range(hit + size, min(seen, max_length) + 1, size)
        blocking = [self._blocking(g, row, edges, max_length) for g, row in enumerate(ids)]
        cuts = find_cuts(self._entries, blocking, edges, hit)
        losses = Losses(history, ids, blocking, cuts, edges).stretches()
        limit = edges[-1] if edges else hit
        return Lookup(
            request,
            history.step,
            history.now_ns,
            history.num_taken,
            request.num_preemptions,
            max_length + 1,
            hit,
            tuple(_longest(edges, row, hit) for row in blocking),
            tuple(cuts),
            (*losses, *beyond(limit, seen, max_length)),
        )

    def _ids(self, request: Request, group_id: int) -> Sequence[int]:
        return request.prefix_ids_by(self._managers[group_id].block_size // self._hash_block_size)

    def _seen(self, ids: Sequence[Sequence[int]], max_length: int) -> int:
        """Tokens from the beginning on that some group has dealt with before, the last included."""
        return max(
            self._num_seen(g, row, (max_length + 1) // m.block_size) * m.block_size
            for g, (row, m) in enumerate(zip(ids, self._managers, strict=True))
        )

    def _num_seen(self, group_id: int, ids: Sequence[int], limit: int) -> int:
        """Count seen blocks by bisection: who has seen a prefix has seen every shorter one."""
        low, high = 0, min(limit, len(ids))
        while low < high:
            middle = (low + high) // 2
            if self._history.has_seen(group_id, ids[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def _blocking(
        self, group_id: int, ids: Sequence[int], edges: range, max_length: int
    ) -> list[int]:
        manager = self._managers[group_id]
        return blocking_blocks(
            edges,
            ids,
            self._pool.cached_blocks[group_id],
            manager.block_size,
            self._needs[group_id],
            manager.use_eagle and manager.honours_eagle_drop,
            max_length,
        )


def _entries(coordinator: Any) -> list[Entry]:
    """Return the groups in the order in which the coordinator asks them."""
    groups = getattr(coordinator, "attention_groups", None)
    if groups is None:
        return [Entry(tuple(range(len(coordinator.single_type_managers))))]
    return [Entry(tuple(g.group_ids)) for g in groups]


def _longest(edges: range, blocking: Sequence[int], hit: int) -> int:
    usable = (e for e, b in zip(reversed(edges), reversed(blocking), strict=True) if b == USABLE)
    return next(usable, hit)
