"""Counts what a run asks of the pool: the work that a benchmark asserts and divides by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.core.kv_cache_manager import KVCacheManager
from sim.observer import Observer


@dataclass(slots=True)
class BlockOperations:
    """looked_up: identities asked of the index, per group; all others: blocks."""

    looked_up: int = 0
    allocated: int = 0
    touched: int = 0
    registered: int = 0
    evicted: int = 0
    freed: int = 0

    @property
    def total(self) -> int:
        return self.looked_up + self.allocated + self.freed

    @property
    def changes(self) -> int:
        """What both engines count: everything but look-ups."""
        return self.allocated + self.touched + self.registered + self.evicted + self.freed


@dataclass(slots=True)
class CountingObserver(Observer):
    """Counts blocks that change hands."""

    operations: BlockOperations = field(default_factory=BlockOperations)

    def allocated(self, block_ids: Sequence[int], group_id: int) -> None:
        self.operations.allocated += len(block_ids)

    def touched(self, block_ids: Sequence[int], group_id: int) -> None:
        self.operations.touched += len(block_ids)

    def registered(self, *args: Any) -> None:
        self.operations.registered += len(args[-1])

    def evicted(self, block_ids: Sequence[int], *args: Any) -> None:
        self.operations.evicted += len(block_ids)

    def freed(self, block_ids: Sequence[int]) -> None:
        self.operations.freed += len(block_ids)


def compiled_operations(core: Any) -> BlockOperations:
    """Return what a compiled core has counted since its start; it does not count look-ups."""
    counters = core._manager.pool.counters[0]
    return BlockOperations(
        0,
        *(
            int(counters[f"num_{what}"])
            for what in ("taken", "touched", "registered", "evicted", "freed")
        ),
    )


class CountingIndex(dict):
    """A cache index that counts look-ups (not registrations)."""

    def __init__(self, operations: BlockOperations):
        super().__init__()
        self._operations = operations

    def get(self, key: Any, default: Any = None) -> Any:
        self._operations.looked_up += 1
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._operations.looked_up += 1
        return super().__contains__(key)


def count_lookups(manager: KVCacheManager, operations: BlockOperations) -> None:
    """Replace the empty indexes of a new manager by counting ones."""
    pool = manager.block_pool
    pool.cached_blocks[:] = [CountingIndex(operations) for _ in pool.cached_blocks]
