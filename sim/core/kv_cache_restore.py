"""A Python manager with the state of a compiled one: for recounts, and to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.core.block_pool import BlockPool
from sim.core.block_pool_compiled import NO_BLOCK, Pool
from sim.core.eviction import FreeKVCacheBlockQueue
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.kv_cache_state_compiled import Manager
from sim.core.prefix_cache_stats import PrefixCacheStats


def restore(manager: KVCacheManager, state: Manager, names: Mapping[int, str]) -> KVCacheManager:
    """Give a manager that has served nothing the state of its compiled counterpart; return it.

    names : request id by record, of the requests that have not ended

    Cost: O(pool + index + tables). Mutates ``manager``; again at each call.
    """
    _restore_pool(manager.block_pool, state.pool)
    for group_id, single in enumerate(manager.coordinator.single_type_managers):
        _restore_tables(single, group_id, state, names)
    manager.prefix_cache_stats = prefix_cache_stats(state)
    return manager


def prefix_cache_stats(state: Manager) -> PrefixCacheStats:
    """Return the statistics of lookups."""
    lookup = state.lookup[0]
    counts = {n: int(lookup[n]) for n in PrefixCacheStats.__dataclass_fields__ if n != "reset"}
    return PrefixCacheStats(**counts)


def _restore_pool(pool: BlockPool, state: Pool) -> None:
    blocks, counters = state.blocks, state.counters[0]
    null_holders = pool.ref_cnt[0]
    pool.ref_cnt = blocks.ref_cnt.tolist()
    pool.ref_cnt[0] = null_holders
    pool.prefix_id = blocks.prefix_id.tolist()
    pool.group_id = blocks.group_id.tolist()
    pool.held_by_group = state.held_by_group.tolist()
    pool.cached_free_by_group = state.cached_free_by_group.tolist()
    queue = FreeKVCacheBlockQueue([], pool.num_gpu_blocks)
    queue.prepend_n(state.front[: counters.front_length][::-1].tolist())
    back = state.back[counters.back_head : counters.back_length]
    queue.append_n(back[back != NO_BLOCK].tolist())
    pool.free_block_queue = queue
    for group_id, index in enumerate(state.index):
        found = index.nonzero()[0]
        pool.cached_blocks[group_id] = dict(zip(found.tolist(), index[found].tolist(), strict=True))
        pool.duplicates[group_id] = _duplicates(blocks, index, found.tolist())


def _duplicates(blocks: Any, index: Any, prefix_ids: list[int]) -> dict[int, dict[int, None]]:
    """Return the later blocks of each identity that has some, in order of registration."""
    firsts = index[prefix_ids]
    shared = blocks.later[firsts] != firsts
    found: dict[int, dict[int, None]] = {}
    for prefix_id, first in zip(
        [p for p, is_shared in zip(prefix_ids, shared, strict=True) if is_shared],
        firsts[shared].tolist(),
        strict=True,
    ):
        others, block_id = {}, int(blocks.later[first])
        while block_id != first:
            others[block_id] = None
            block_id = int(blocks.later[block_id])
        found[prefix_id] = others
    return found


def _restore_tables(single: Any, group_id: int, state: Manager, names: Mapping[int, str]) -> None:
    single.req_to_blocks, single.num_cached_block = {}, {}
    states: dict[str, int] = {}
    allocated: set[str] = set()
    for r, request_id in names.items():
        row = int(state.requests[r].row)
        if row < 0:
            continue
        note = state.tables.notes[row, group_id]
        table = state.tables.blocks[row, group_id]
        single.req_to_blocks[request_id] = table[: note.length].tolist()
        if note.num_cached_block >= 0:
            single.num_cached_block[request_id] = int(note.num_cached_block)
        if note.last_state_block_idx >= 0:
            states[request_id] = int(note.last_state_block_idx)
        if note.is_allocated:
            allocated.add(request_id)
    if hasattr(single, "last_state_block_idx"):
        single.last_state_block_idx, single._allocated_block_reqs = states, allocated
