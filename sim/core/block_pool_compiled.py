"""The compiled half of the block pool: columns, cache index and free queue as arrays.

Functions have the names that they have in ``block_pool.py``; a table is a row of an array, so a
range of it stands where that file has a list. What differs is said where it differs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.core.eviction.lru_compiled import appended_to, popleft_n, prepend, remove, room_behind
from sim.jit import compiled

NULL_BLOCK = 0
NO_PREFIX = -1
NO_BLOCK = 0
"""In the index: nothing is cached under this identity. The null block never is."""
_NULL_HOLDERS = 1 << 30

BLOCK = np.dtype(
    [
        ("ref_cnt", "i4"),
        ("prefix_id", "i4"),
        ("group_id", "i4"),
        ("position", "i4"),  # in the list of the free queue, while it is there
        ("later", "i4"),  # blocks with one identity form a ring in order of registration
        ("earlier", "i4"),
    ],
    align=True,
)
"""The state of one block; one cache line holds it."""

COUNTERS = np.dtype(
    [
        ("num_free_blocks", "i8"),
        ("front_length", "i8"),
        ("back_head", "i8"),
        ("back_length", "i8"),
        ("num_watched", "i8"),
        ("watched_first", "i8"),  # smallest and largest watched identity
        ("watched_last", "i8"),
        ("watch_is_stale", "i8"),
        ("num_taken", "i8"),
        ("num_evicted", "i8"),
        ("num_registered", "i8"),
        ("num_touched", "i8"),
        ("num_freed", "i8"),
    ],
    align=True,
)
"""What counts for the pool as a whole; the last five are totals since the start, in blocks."""


class Pool(NamedTuple):
    """State of the pool; shapes: B blocks, G groups, P identities.

    counters : COUNTERS (1,); blocks : BLOCK (B,); front, back : int32, the free queue
    index : int32 (G, P), the earliest registered block of an identity, or NO_BLOCK
    is_watched : uint8 (P,); watched : int32 (P,), the identities that are flagged
    held_by_group, cached_free_by_group : int64 (G,)
    """

    counters: np.ndarray
    blocks: np.ndarray
    front: np.ndarray
    back: np.ndarray
    index: np.ndarray
    is_watched: np.ndarray
    watched: np.ndarray
    held_by_group: np.ndarray
    cached_free_by_group: np.ndarray


def new_pool(num_gpu_blocks: int, num_groups: int, num_prefix_ids: int) -> Pool:
    """Return the pool with every block free, in the order of the ids."""
    blocks = np.zeros(num_gpu_blocks, BLOCK).view(np.recarray)
    blocks.prefix_id = blocks.group_id = NO_PREFIX
    blocks.later = blocks.earlier = np.arange(num_gpu_blocks)
    blocks[NULL_BLOCK].ref_cnt = _NULL_HOLDERS
    counters = np.zeros(1, COUNTERS).view(np.recarray)
    counters.num_free_blocks = counters.front_length = num_gpu_blocks - 1
    counters.watched_last = -1
    front = np.zeros(num_gpu_blocks, np.int32)
    front[: num_gpu_blocks - 1] = np.arange(num_gpu_blocks - 1, 0, -1)
    return Pool(
        counters,
        blocks,
        front,
        np.zeros(2 * num_gpu_blocks + 64, np.int32),
        np.zeros((num_groups, num_prefix_ids), np.int32),
        np.zeros(num_prefix_ids, np.uint8),
        np.zeros(num_prefix_ids, np.int32),
        np.zeros(num_groups, np.int64),
        np.zeros(num_groups, np.int64),
    )


def with_room_for(pool: Pool, num_prefix_ids: int) -> Pool:
    """Return the pool with an index of at least so many identities, its content kept."""
    groups, size = pool.index.shape
    if num_prefix_ids <= size:
        return pool
    new_size = max(num_prefix_ids, 2 * size)
    index = np.zeros((groups, new_size), np.int32)
    index[:, :size] = pool.index
    flags, watched = np.zeros(new_size, np.uint8), np.zeros(new_size, np.int32)
    flags[:size], watched[:size] = pool.is_watched, pool.watched
    return pool._replace(index=index, is_watched=flags, watched=watched)


# -- lookup ------------------------------------------------------------------------------------
@compiled
def watch(pool, prefix_ids, count):
    """Note from now on whether any of the first ``count`` identities enters or leaves the index."""
    counters = pool.counters[0]
    unwatch(pool)
    first, last = 1 << 62, -1
    for i in range(count):
        prefix_id = prefix_ids[i]
        pool.watched[i] = prefix_id
        pool.is_watched[prefix_id] = 1
        first, last = min(first, prefix_id), max(last, prefix_id)
    counters.num_watched = count
    counters.watched_first = first
    counters.watched_last = last
    counters.watch_is_stale = 0


@compiled
def unwatch(pool):
    """Watch nothing."""
    counters = pool.counters[0]
    for i in range(counters.num_watched):
        pool.is_watched[pool.watched[i]] = 0
    counters.num_watched = 0
    counters.watched_last = -1


@compiled
def _note(counters, is_watched, prefix_id):
    """Note that an identity entered or left the index; most lie outside the range of the flags."""
    if counters.watched_first <= prefix_id <= counters.watched_last and is_watched[prefix_id]:
        counters.watch_is_stale = 1


# -- taking and giving back --------------------------------------------------------------------
@compiled
def get_new_blocks(pool, n, group_id, table, start):
    """Take ``n`` blocks into table[start : start + n]; content that they cached is lost."""
    popleft_n(pool, n, table, start)
    blocks, index, is_watched, counters = pool.blocks, pool.index, pool.is_watched, pool.counters[0]
    cached_free, before, count, num_evicted = pool.cached_free_by_group, 0, 0, 0
    for i in range(start, start + n):
        block_id = table[i]
        block = blocks[block_id]
        if block.prefix_id >= 0:
            # Blocks of one group follow each other, so their counter is written once.
            if block.group_id != before:
                cached_free[before] -= count
                before, count = block.group_id, 0
            count += 1
            num_evicted += 1
            _drop_key(blocks, index, is_watched, counters, block_id)
        block.ref_cnt = 1
        block.group_id = group_id
    cached_free[before] -= count
    pool.held_by_group[group_id] += n
    counters.num_taken += n
    counters.num_evicted += num_evicted


@compiled
def _drop_key(blocks, index, is_watched, counters, block_id):
    """Remove a cached block from the index: ``_drop_keys`` of one block with one key."""
    block = blocks[block_id]
    prefix_id, group_id = block.prefix_id, block.group_id
    block.prefix_id = NO_PREFIX
    if block.later == block_id:
        index[group_id, prefix_id] = NO_BLOCK
    else:
        _drop_duplicate(blocks, index, block_id, group_id, prefix_id)
    _note(counters, is_watched, prefix_id)


@compiled
def _drop_duplicate(blocks, index, block_id, group_id, prefix_id):
    later, earlier = blocks[block_id].later, blocks[block_id].earlier
    blocks[later].earlier = earlier
    blocks[earlier].later = later
    blocks[block_id].later = block_id
    blocks[block_id].earlier = block_id
    if index[group_id, prefix_id] == block_id:
        index[group_id, prefix_id] = later


@compiled
def touch(pool, table, start, end, group_id):
    """Add a holder to the cached blocks of a range; those that were free leave the queue."""
    blocks, num_pulled = pool.blocks, 0
    for i in range(start, end):
        block_id = table[i]
        if blocks[block_id].ref_cnt == 0:
            remove(pool, block_id)
            num_pulled += 1
        blocks[block_id].ref_cnt += 1
    pool.cached_free_by_group[group_id] -= num_pulled
    pool.held_by_group[group_id] += num_pulled
    pool.counters[0].num_touched += end - start


@compiled
def free_blocks(pool, table, start, end, group_id):
    """Take a holder away from each block of a range, the last one first; nulls are skipped.

    Blocks without holders then enter the queue: those without content at the front, cached ones at
    the back, both from right to left.
    """
    blocks, back = pool.blocks, pool.back
    num_named, num_freed, leftmost, rightmost = 0, 0, end, start
    first = place = room_behind(pool, end - start)
    for i in range(end - 1, start - 1, -1):
        block_id = table[i]
        if block_id == NULL_BLOCK:
            continue
        num_named += 1
        block = blocks[block_id]
        block.ref_cnt -= 1
        if block.ref_cnt != 0:
            continue
        num_freed += 1
        if block.prefix_id >= 0:
            back[place] = block_id
            block.position = place
            place += 1
        else:
            leftmost, rightmost = i, max(rightmost, i + 1)
    appended_to(pool, place)
    for i in range(leftmost, rightmost):
        # From the left, so that the last one lies on top of the stack.
        if table[i] != NULL_BLOCK and _is_empty(blocks[table[i]]):
            prepend(pool, table[i])
    pool.held_by_group[group_id] -= num_freed
    pool.cached_free_by_group[group_id] += place - first
    pool.counters[0].num_freed += num_named


@compiled
def _is_empty(block):
    return block.ref_cnt == 0 and block.prefix_id < 0


# -- the cache index -----------------------------------------------------------------------------
@compiled
def register_range(pool, group_id, table, start, end, prefix_ids, place, factor):
    """Register the blocks of a range, nulls left out, that are in use and cache nothing.

    Block i is cached under ``prefix_ids[place + (i - start) * factor]``.
    """
    blocks, is_watched, counters = pool.blocks, pool.is_watched, pool.counters[0]
    index, count = pool.index[group_id], 0
    for i in range(start, end):
        block_id = table[i]
        prefix_id = prefix_ids[place]
        place += factor
        if block_id == NULL_BLOCK:
            continue
        count += 1
        blocks[block_id].prefix_id = prefix_id
        if index[prefix_id] == NO_BLOCK:
            index[prefix_id] = block_id
        else:
            _add_duplicate(blocks, index[prefix_id], block_id)
        _note(counters, is_watched, prefix_id)
    counters.num_registered += count


@compiled
def _add_duplicate(blocks, first, block_id):
    last = blocks[first].earlier
    blocks[block_id].earlier = last
    blocks[block_id].later = first
    blocks[last].later = block_id
    blocks[first].earlier = block_id


# -- forgetting --------------------------------------------------------------------------------
@compiled
def evict_block(pool, block_id):
    """Forget what a block caches; holders and queue positions stay as they are."""
    block = pool.blocks[block_id]
    if block.prefix_id < 0:
        return
    if block.ref_cnt == 0:
        pool.cached_free_by_group[block.group_id] -= 1
    _drop_key(pool.blocks, pool.index, pool.is_watched, pool.counters[0], block_id)


@compiled
def reset_prefix_cache(pool):
    """Empty the index if no block has a holder; return whether that was so."""
    counters, blocks = pool.counters[0], pool.blocks
    if counters.num_free_blocks != len(blocks) - 1:
        return False
    for block_id in range(len(blocks)):
        if blocks[block_id].prefix_id >= 0:
            evict_block(pool, block_id)
    counters.watch_is_stale = 1
    return True
