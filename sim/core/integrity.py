"""Recounts the whole state of a manager from scratch, and names what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NoReturn

from sim.core.block_pool import NO_PREFIX, NULL_BLOCK, BlockPool
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.errors import InvariantError

_FEWEST_NULL_HOLDERS = 1 << 59


def check_integrity(manager: KVCacheManager, deferred_frees: Iterable[int] = ()) -> None:
    """Raise InvariantError, with all terms, on the first law of spec/manager.md 8 that is broken.

    deferred_frees : blocks that ``pop_blocks_for_free`` gave out and nobody has freed yet

    Each kind of damage has words of its own (tests/faults). Cost: O(pool + tables + index); a
    queue that runs in a circle does not hang it. Mutates nothing.
    """
    pool = manager.block_pool
    free = check_queue(pool)
    holders = _check_tables(manager, deferred_frees)
    _check_holders(pool, free, holders)
    _check_index(pool)
    _check_partial_keys(pool)
    _check_counters(manager, free)


def _require(law: str, left: object, right: object) -> None:
    if left != right:
        _broken(f"{law}: {left} is not {right}")


def _broken(what: str) -> NoReturn:
    raise InvariantError(what)


# -- the free queue ------------------------------------------------------------------------------
def check_queue(pool: BlockPool) -> set[int]:
    """Return the free blocks, after the queue's own check and a walk that cannot hang."""
    queue = pool.free_block_queue
    check_structure = getattr(queue, "check_structure", None)
    order = list(islice(_walk(queue), pool.num_gpu_blocks + 1))
    if len(order) > pool.num_gpu_blocks:
        _broken(f"the free queue runs in a circle: more than {pool.num_gpu_blocks} members")
    free = set(order)
    if len(free) < len(order):
        twice = sorted(b for b, count in Counter(order).items() if count > 1)
        _broken(f"blocks are in the free queue more than once: {twice}")
    if NULL_BLOCK in free:
        _broken("the null block is in the free queue")
    outside = sorted(b for b in free if not 0 <= b < pool.num_gpu_blocks)
    _require("free blocks outside the pool", outside, [])
    if check_structure is not None:
        check_structure()
    _require("blocks in the free queue = its counter", len(order), pool.get_num_free_blocks())
    return free


def _walk(queue: Any) -> Iterator[int]:
    """Members from head to tail, one by one where the policy can do so."""
    return iter(queue if hasattr(queue, "__iter__") else queue.get_all_free_blocks())


# -- tables and holders --------------------------------------------------------------------------
def _check_tables(manager: KVCacheManager, deferred_frees: Iterable[int]) -> Counter[int]:
    """Count holders; check that a used block belongs to one group and occurs once per table."""
    pool = manager.block_pool
    holders = Counter(deferred_frees)
    owner: dict[int, int] = {}
    for group_id, single in enumerate(manager.coordinator.single_type_managers):
        # Attention sinks: blocks that belong to the group itself.
        _claim(holders, owner, group_id, list(single.permanent_blocks))
        for request_id, table in single.req_to_blocks.items():
            held = [b for b in table if b != NULL_BLOCK]
            _check_table(pool, f"request {request_id}, group {group_id}", held)
            _claim(holders, owner, group_id, held)
        _check_progress(single, group_id)
    for block_id, group_id in owner.items():
        recorded = pool.group_id[block_id]
        _require(f"recorded group of block {block_id} = its holder's", recorded, group_id)
    del holders[NULL_BLOCK]
    return holders


def _check_table(pool: BlockPool, where: str, held: list[int]) -> None:
    outside = sorted(b for b in held if not 0 < b < pool.num_gpu_blocks)
    _require(f"blocks of {where} outside the pool", outside, [])
    _require(f"distinct blocks of {where} = blocks", len(set(held)), len(held))


def _claim(holders: Counter[int], owner: dict[int, int], group_id: int, held: list[int]) -> None:
    holders.update(held)
    for block_id in held:
        first = owner.setdefault(block_id, group_id)
        if first != group_id:
            _broken(f"groups {first} and {group_id} share block {block_id}")


def _check_progress(single: SingleTypeKVCacheManager, group_id: int) -> None:
    """Check what a group notes about requests against their tables."""
    tables = single.req_to_blocks
    for request_id, done in single.num_cached_block.items():
        length = len(tables.get(request_id, ()))
        if not 0 <= done <= length:
            where = f"request {request_id}, group {group_id}"
            _broken(f"num_cached_block of {where} is {done}, its table has {length} entries")
    # Recurrent groups in align mode.
    for request_id, idx in getattr(single, "last_state_block_idx", {}).items():
        length = len(tables.get(request_id, ()))
        if not 0 <= idx < length:
            where = f"request {request_id}, group {group_id}"
            _broken(f"the last state of {where} is at {idx}, its table has {length} entries")


def _check_holders(pool: BlockPool, free: set[int], holders: Counter[int]) -> None:
    for block_id in range(1, pool.num_gpu_blocks):
        count, found = pool.ref_cnt[block_id], holders[block_id]
        if block_id in free and found:
            _broken(f"block {block_id} is free but {found} tables name it")
        if not found and not count and block_id not in free:
            _broken(f"block {block_id} is leaked: no holder, and not in the free queue")
        if count != found:
            _broken(f"ref_cnt of block {block_id} = its holders: {count} is not {found}")
    terms = (len(free), len(holders), 1)
    _require(f"free + held + null {terms} = blocks", sum(terms), pool.num_gpu_blocks)
    if pool.ref_cnt[NULL_BLOCK] < _FEWEST_NULL_HOLDERS:
        _broken(f"the null block could look free: ref_cnt {pool.ref_cnt[NULL_BLOCK]}")


# -- the cache index -----------------------------------------------------------------------------
def _entries(pool: BlockPool) -> Iterator[tuple[int, int, int]]:
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
    """Check that each entry leads to a block that says the same, and each such block is there."""
    found: Counter[tuple[int, int]] = Counter()
    for group_id, prefix_id, block_id in _entries(pool):
        _check_entry(pool, group_id, prefix_id, block_id)
        found[block_id, prefix_id] += 1
    twice = sorted(key for key, count in found.items() if count > 1)
    _require("(block, identity) that the index has more than once", twice, [])
    _require("the null block has an identity", pool.prefix_id[NULL_BLOCK], NO_PREFIX)
    for block_id, prefix_id in enumerate(pool.prefix_id):
        if prefix_id != NO_PREFIX and (block_id, prefix_id) not in found:
            group_id = pool.group_id[block_id]
            _broken(
                f"the index of group {group_id} lacks block {block_id}, whose identity is "
                f"{prefix_id}"
            )
    if not pool.enable_caching:
        _require("entries of the index with caching off", len(found), 0)


def _check_entry(pool: BlockPool, group_id: int, prefix_id: int, block_id: int) -> None:
    if block_id == NULL_BLOCK:
        _broken(f"the null block is cached as {prefix_id} in group {group_id}")
    if not 0 < block_id < pool.num_gpu_blocks:
        _broken(f"the index of group {group_id} names block {block_id}, outside the pool")
    recorded = pool.prefix_id[block_id]
    keys = pool.partial_keys.get(block_id)
    if prefix_id != recorded and (keys is None or prefix_id not in keys.secondary):
        _broken(
            f"the index of group {group_id} leads from {prefix_id} to block {block_id}, whose "
            f"identity is {recorded}"
        )
    if pool.group_id[block_id] != group_id:
        _broken(
            f"block {block_id} of group {pool.group_id[block_id]} is in the index of group "
            f"{group_id}"
        )


def _check_partial_keys(pool: BlockPool) -> None:
    """Check what is noted about blocks that were cached before they were full."""
    for block_id, keys in pool.partial_keys.items():
        if not 0 < block_id < pool.num_gpu_blocks or pool.prefix_id[block_id] == NO_PREFIX:
            _broken(f"block {block_id} has partial keys but no identity")
        if not keys.num_tokens and not keys.secondary:
            _broken(f"partial keys of block {block_id} are empty")
        names = [pool.prefix_id[block_id], *keys.secondary]
        _require(f"distinct keys of block {block_id} = keys", len(set(names)), len(names))
        for prefix_id in keys.secondary:
            if not _leads_to(pool, pool.group_id[block_id], prefix_id, block_id):
                _broken(f"the index lacks the secondary key {prefix_id} of block {block_id}")


def _leads_to(pool: BlockPool, group_id: int, prefix_id: int, block_id: int) -> bool:
    first = pool.cached_blocks[group_id].get(prefix_id)
    return block_id == first or block_id in pool.duplicates[group_id].get(prefix_id, ())


# -- counters ------------------------------------------------------------------------------------
def _check_counters(manager: KVCacheManager, free: set[int]) -> None:
    pool = manager.block_pool
    groups = range(len(pool.held_by_group))
    found = Counter(pool.group_id[b] for b in free if pool.prefix_id[b] != NO_PREFIX)
    cached_free = [found[g] for g in groups]
    _require("cached free blocks by group = counters", cached_free, pool.cached_free_by_group)
    held = Counter(pool.group_id[b] for b in range(1, pool.num_gpu_blocks) if b not in free)
    counted = [held[g] for g in groups]
    _require("held blocks by group = counters", counted, pool.held_by_group)
    singles = manager.coordinator.single_type_managers
    permanent = sum(len(single.permanent_blocks) for single in singles)
    _require("permanent blocks = their counter", permanent, pool.num_permanent_blocks)
