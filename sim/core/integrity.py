"""Recounts the whole state of a manager from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

from sim.core.block_pool import NO_PREFIX, NULL_BLOCK, BlockPool
from sim.core.kv_cache_manager import KVCacheManager
from sim.errors import InvariantError


def check_integrity(manager: KVCacheManager) -> None:
    """Raise InvariantError, with all terms, on the first law of spec/manager.md 8 that is broken.

    Cost: O(pool + tables). Mutates nothing.
    """
    pool = manager.block_pool
    free = _check_queue(pool)
    holders = _check_tables(manager)
    _check_holders(pool, free, holders)
    _check_index(pool)
    _check_counters(pool, free)


def _require(law: str, left: object, right: object) -> None:
    if left != right:
        _broken(law, left, right)


def _broken(law: str, left: object, right: object) -> NoReturn:
    raise InvariantError(f"{law}: {left} is not {right}")


def _check_queue(pool: BlockPool) -> set[int]:
    order = pool.free_block_queue.get_all_free_blocks()
    free = set(order)
    _require("distinct blocks in the free queue = its length", len(free), len(order))
    _require("blocks in the free queue = its counter", len(order), pool.get_num_free_blocks())
    outside = [b for b in order if not NULL_BLOCK < b < pool.num_gpu_blocks]
    _require("free blocks outside the pool", outside, [])
    return free


def _check_tables(manager: KVCacheManager) -> Counter[int]:
    """Count holders; check that a used block belongs to one group and occurs once per table."""
    holders: Counter[int] = Counter()
    owner: dict[int, int] = {}
    for group_id, single in enumerate(manager.coordinator.single_type_managers):
        for request_id, table in single.req_to_blocks.items():
            held = [b for b in table if b != NULL_BLOCK]
            where = f"request {request_id}, group {group_id}"
            _require(f"distinct blocks of {where} = blocks", len(set(held)), len(held))
            done = single.num_cached_block.get(request_id, 0)
            _require(f"cached entries {done} of {where} within the table", done <= len(table), True)
            holders.update(held)
            for block_id in held:
                first = owner.setdefault(block_id, group_id)
                if first != group_id:
                    _broken(f"group of block {block_id}", first, group_id)
    for block_id, group_id in owner.items():
        recorded = manager.block_pool.group_id[block_id]
        _require(f"recorded group of block {block_id} = its holder's", recorded, group_id)
    return holders


def _check_holders(pool: BlockPool, free: set[int], holders: Counter[int]) -> None:
    terms = (len(free), len(holders), 1)
    _require(f"free + held + null {terms} = blocks", sum(terms), pool.num_gpu_blocks)
    for block_id in range(1, pool.num_gpu_blocks):
        count = pool.ref_cnt[block_id]
        if count != holders[block_id]:
            _broken(f"ref_cnt of block {block_id} = its holders", count, holders[block_id])
        if (block_id in free) != (count == 0):
            _broken(f"block {block_id} without holders is free", block_id in free, count == 0)


def _entries(pool: BlockPool) -> Iterable[tuple[int, int, int]]:
    for group_id, (index, others) in enumerate(
        zip(pool.cached_blocks, pool.duplicates, strict=True)
    ):
        for prefix_id, block_id in index.items():
            yield group_id, prefix_id, block_id
        for prefix_id, block_ids in others.items():
            _require(f"duplicates of {prefix_id} have a first", prefix_id in index, True)
            _require(f"duplicates of {prefix_id} are some", bool(block_ids), True)
            for block_id in block_ids:
                yield group_id, prefix_id, block_id


def _check_index(pool: BlockPool) -> None:
    seen: set[int] = set()
    for group_id, prefix_id, block_id in _entries(pool):
        recorded = (pool.group_id[block_id], pool.prefix_id[block_id])
        if block_id in seen:
            _broken(f"block {block_id} is in the index once", (group_id, prefix_id), recorded)
        if recorded != (group_id, prefix_id):
            _broken(f"group and identity of block {block_id}", recorded, (group_id, prefix_id))
        seen.add(block_id)
    hashed = {b for b, prefix_id in enumerate(pool.prefix_id) if prefix_id != NO_PREFIX}
    _require("blocks with an identity that the index lacks", sorted(hashed - seen), [])
    _require("the null block is never cached", NULL_BLOCK in seen, False)
    if not pool.enable_caching:
        _require("blocks cached with caching off", sorted(seen), [])


def _check_counters(pool: BlockPool, free: set[int]) -> None:
    groups = range(len(pool.held_by_group))
    found = Counter(pool.group_id[b] for b in free if pool.prefix_id[b] != NO_PREFIX)
    cached_free = [found[g] for g in groups]
    _require("cached free blocks by group = counters", cached_free, pool.cached_free_by_group)
    held = Counter(pool.group_id[b] for b in range(1, pool.num_gpu_blocks) if b not in free)
    counted = [held[g] for g in groups]
    _require("held blocks by group = counters", counted, pool.held_by_group)
