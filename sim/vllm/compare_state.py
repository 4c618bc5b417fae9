"""The whole state of the cache, on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.core.manager_protocol import ManagerProtocol
from sim.vllm.difference import Difference, first_of, of_mappings, of_sequences
from sim.vllm.pool_view import BlockPoolView, GroupView

STATS = (
    "requests",
    "queries",
    "hits",
    "preempted_requests",
    "preempted_queries",
    "preempted_hits",
)

Index = Sequence[Mapping[int, int]]


class StateComparison:
    """Compares the state of our manager with that of vLLM's; counts the blocks that it compared."""

    def __init__(self, ours: ManagerProtocol, pool: BlockPoolView, groups: Sequence[GroupView]):
        self._ours = ours
        self._pool = pool
        self._groups = groups
        self.num_blocks = 0

    def difference(self) -> Difference | None:
        """Return the first difference: tables, holders, the free queue, the index."""
        self.num_blocks += self._pool.num_gpu_blocks
        return first_of(self._differences())

    def _differences(self) -> Iterator[Difference | None]:
        managers = self._ours.coordinator.single_type_managers
        for group_id, (ours, theirs) in enumerate(zip(managers, self._groups, strict=True)):
            yield _of_tables(group_id, ours.req_to_blocks, theirs.req_to_blocks)
            yield _of_registered(group_id, ours.num_cached_block, theirs.num_cached_block)
        pool = self._ours.block_pool
        yield of_sequences("free queue", *_queues(pool, self._pool), are_blocks=True)
        yield _of_holders(pool.ref_cnt, self._pool.ref_cnt)
        yield from _of_index("cached block", pool.cached_blocks, self._pool.cached_blocks)
        yield from _of_index("duplicates", _lists(pool), _lists(self._pool))


def _queues(ours: Any, theirs: Any) -> tuple[list[int], list[int]]:
    mine, other = (pool.free_block_queue.get_all_free_blocks() for pool in (ours, theirs))
    return mine, other


def _lists(pool: Any) -> list[dict[int, list[int]]]:
    return [{i: list(ids) for i, ids in group.items()} for group in pool.duplicates]


def _of_tables(
    group_id: int, ours: Mapping[str, list[int]], theirs: Mapping[str, list[int]]
) -> Difference | None:
    filled = {request_id: table for request_id, table in ours.items() if table}

    def of_tables(request_id: str, mine: list[int], other: list[int]) -> Difference | None:
        return of_sequences("table", mine, other, True, request_id=request_id, group_id=group_id)

    return of_mappings(f"table in group {group_id}", filled, theirs, of_tables)


def _of_registered(
    group_id: int, ours: Mapping[str, int], theirs: Mapping[str, int]
) -> Difference | None:
    mine, other = ({i: n for i, n in side.items() if n} for side in (ours, theirs))
    return of_mappings(f"entries dealt with for caching in group {group_id}", mine, other)


def _of_holders(ours: Sequence[int], theirs: Sequence[int]) -> Difference | None:
    """The null block is left out: its holders are not counted on either side."""
    mine, other = list(ours[1:]), list(theirs[1:])
    if mine == other:
        return None
    place = next(i for i, pair in enumerate(zip(mine, other, strict=True)) if pair[0] != pair[1])
    block_id = place + 1
    return Difference(
        f"reference count of block {block_id}", mine[place], other[place], blocks=(block_id,)
    )


def _of_index(what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[Difference | None]:
    for group_id, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        found = of_mappings(f"{what} of identity", dict(mine), other)
        if found is not None:
            blocks = tuple(b for b in (found.ours, found.theirs) if isinstance(b, int))
            yield Difference(found.what, found.ours, found.theirs, None, group_id, blocks)


def of_statistics(ours: Any, theirs: Mapping[str, int]) -> Difference | None:
    """Compare the counts of lookups."""
    mine = {name: getattr(ours, name) for name in STATS}
    return of_mappings("prefix cache statistics", mine, theirs)
