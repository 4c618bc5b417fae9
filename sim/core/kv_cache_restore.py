"""A Python manager with the state of a compiled one: for recounts, and to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sim.core.block_pool import BlockPool
from sim.core.block_pool_compiled import NO_BLOCK, Pool
from sim.core.eviction import FreeKVCacheBlockQueue
from sim.core.integrity_compiled import counted
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.kv_cache_state_compiled import Manager
from sim.core.prefix_cache_stats import PrefixCacheStats


def restore(
    manager: KVCacheManager, state: Manager, names: Mapping[int, str], num_prefix_ids: int
) -> KVCacheManager:
    """Give a manager that has served nothing the state of its compiled counterpart; return it.

    names : request id by record, of the requests that have not ended
    num_prefix_ids : every identity so far is below it

    Cost: O(pool + index + tables). Mutates ``manager``; again at each call.
    """
    _restore_pool(manager.block_pool, state, names, num_prefix_ids)
    for group_id, single in enumerate(manager.coordinator.single_type_managers):
        _restore_tables(single, group_id, state, names)
    manager.prefix_cache_stats = prefix_cache_stats(state)
    return manager


def prefix_cache_stats(state: Manager) -> PrefixCacheStats:
    """Return the statistics of lookups."""
    lookup = state.lookup[0]
    counts = {n: int(lookup[n]) for n in PrefixCacheStats.__dataclass_fields__ if n != "reset"}
    return PrefixCacheStats(**counts)


def _restore_pool(
    pool: BlockPool, state: Manager, records: Iterable[int], num_prefix_ids: int
) -> None:
    counters, columns = state.pool.counters[0], state.pool
    blocks, _ = counted(state, list(records), pool.num_gpu_blocks)
    pool.ref_cnt = [pool.ref_cnt[0], *blocks.holders[1:].tolist()]
    pool.prefix_id = blocks.prefix_id.tolist()
    pool.group_id = blocks.group.tolist()
    pool.held_by_group = columns.held_by_group.tolist()
    pool.cached_free_by_group = columns.cached_free_by_group.tolist()
    queue = FreeKVCacheBlockQueue([], pool.num_gpu_blocks)
    queue.prepend_n(columns.front[: counters.front_length][::-1].tolist())
    back = columns.back[counters.back_head : counters.back_length]
    queue.append_n(back[back != NO_BLOCK].tolist())
    pool.free_block_queue = queue
    for group_id, index in enumerate(columns.index[:num_prefix_ids].T):
        found = index.nonzero()[0]
        firsts = abs(index[found]).tolist()
        pool.cached_blocks[group_id] = dict(zip(found.tolist(), firsts, strict=True))
        pool.duplicates[group_id] = dict(_duplicates(columns, index))


def _duplicates(pool: Pool, index: Any) -> Iterator[tuple[int, dict[int, None]]]:
    """Yield the later blocks of each identity that has some, in order of registration."""
    for prefix_id in (index < 0).nonzero()[0].tolist():
        first = -int(index[prefix_id])
        others, block_id = {}, int(pool.later[first])
        while block_id != first:
            others[block_id] = None
            block_id = int(pool.later[block_id])
        yield prefix_id, others


def _restore_tables(single: Any, group_id: int, state: Manager, names: Mapping[int, str]) -> None:
    single.req_to_blocks, single.num_cached_block = {}, {}
    states: dict[str, int] = {}
    allocated: set[str] = set()
    for r, request_id in names.items():
        row = int(state.requests[r].row)
        if row < 0:
            continue
        note = state.tables.notes[row, group_id]
        table = state.tables.blocks[row, :, group_id]
        single.req_to_blocks[request_id] = table[: note.length].tolist()
        if note.num_cached_block >= 0:
            single.num_cached_block[request_id] = int(note.num_cached_block)
        if note.last_state_block_idx >= 0:
            states[request_id] = int(note.last_state_block_idx)
        if note.is_allocated:
            allocated.add(request_id)
    if hasattr(single, "last_state_block_idx"):
        single.last_state_block_idx, single._allocated_block_reqs = states, allocated
