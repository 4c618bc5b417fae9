"""The compiled half of the block pool: cache index and free queue as arrays.

Functions have the names that they have in ``block_pool.py``; a table is a row of an array, so a
range of it stands where that file has a list. What differs is said where it differs.

Most blocks pass through a table and the queue in long ranges, and nobody asks for one of them
alone. So a block that is held by one table has no record: what it caches follows from its place
there, and in the queue it is written beside it. Blocks are looked up where they are rare.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.core.eviction.lru_compiled import (
    appended_to,
    is_behind,
    prepend,
    remove,
    room_behind,
    take_from_behind,
    take_from_front,
)
from sim.jit import compiled

NULL_BLOCK = 0
NO_BLOCK = 0
"""In the index: nothing is cached under this identity. The null block never is."""
NO_PREFIX = -1

BLOCK = np.dtype(
    [
        ("other_holders", "i4"),  # holders beyond the first
        ("position", "i4"),  # where it was put in the list of the free queue the last time
    ],
    align=True,
)
"""What is kept of one block."""

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

    What is an index itself has no sign, so that compiled code need not look for one.

    counters : COUNTERS (1,)
    blocks : BLOCK (B,)
    front : uint32 (B,), a stack; back : uint32, a list: the free queue
    back_group, back_prefix : int32, uint32, under what each block of the list is cached
    index : int32 (P, G), the earliest registered block of an identity, or NO_BLOCK; negative if it
        is not the only one. What all groups say of an identity lies together: they are often asked
        one after the other
    later, earlier : int32 (B,), blocks with one identity form a ring in order of registration;
        meaningless for the only one
    is_watched : uint8 (P,); watched : int32 (P,), the identities that are flagged
    held_by_group, cached_free_by_group : int64 (G,)
    """

    counters: np.ndarray
    blocks: np.ndarray
    front: np.ndarray
    back: np.ndarray
    back_group: np.ndarray
    back_prefix: np.ndarray
    index: np.ndarray
    later: np.ndarray
    earlier: np.ndarray
    is_watched: np.ndarray
    watched: np.ndarray
    held_by_group: np.ndarray
    cached_free_by_group: np.ndarray


def new_pool(num_gpu_blocks: int, num_groups: int, num_prefix_ids: int) -> Pool:
    """Return the pool with every block free, in the order of the ids."""
    counters = np.zeros(1, COUNTERS).view(np.recarray)
    counters.num_free_blocks = counters.front_length = num_gpu_blocks - 1
    counters.watched_last = -1
    front = np.zeros(num_gpu_blocks, np.uint32)
    front[: num_gpu_blocks - 1] = np.arange(num_gpu_blocks - 1, 0, -1)
    room = 2 * num_gpu_blocks + 64
    return Pool(
        counters,
        np.zeros(num_gpu_blocks, BLOCK).view(np.recarray),
        front,
        *(np.zeros(room, dtype) for dtype in (np.uint32, np.int32, np.uint32)),
        np.zeros((num_prefix_ids, num_groups), np.int32),
        *(np.zeros(num_gpu_blocks, np.int32) for _ in range(2)),
        np.zeros(num_prefix_ids, np.uint8),
        np.zeros(num_prefix_ids, np.int32),
        *(np.zeros(num_groups, np.int64) for _ in range(2)),
    )


def with_room_for(pool: Pool, num_prefix_ids: int) -> Pool:
    """Return the pool with an index of at least so many identities, its content kept.

    Memory that nobody writes to is not there, so it grows by much and is seldom copied.
    """
    size, groups = pool.index.shape
    if num_prefix_ids <= size:
        return pool
    new_size = max(num_prefix_ids, 8 * size)
    index = np.zeros((new_size, groups), np.int32)
    index[:size] = pool.index
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


# -- taking and giving back --------------------------------------------------------------------
@compiled
def get_new_blocks(pool, n, group_id, table, start):
    """Take ``n`` blocks into table[start : start + n]; content that they cached is lost."""
    counters, end = pool.counters[0], start + n
    place = start + take_from_front(pool, n, table, start)
    while place < end:
        place = _take_of_one_group(pool, table, place, end)
    pool.held_by_group[group_id] += n
    counters.num_free_blocks -= n
    counters.num_taken += n


@compiled
def _take_of_one_group(pool, table, place, end):
    """Take blocks from the list behind until one was cached in another group than the first.

    Returns the place in the table behind them, at most ``end``.
    """
    counters, is_watched = pool.counters[0], pool.is_watched
    first, last = counters.watched_first, counters.watched_last
    source, count, wanted = take_from_behind(pool), 0, end - place
    # Loops over slices from 0 on: Numba need not ask whether an index is negative.
    back, groups, prefixes = pool.back[source:], pool.back_group[source:], pool.back_prefix[source:]
    group_id, taken = groups[0], table[place:end]
    index, i = pool.index[:, group_id], 0
    while count < wanted:
        block_id, prefix_id = back[i], prefixes[i]
        if block_id == NO_BLOCK:
            i += 1
            continue
        if groups[i] != group_id:
            break
        i += 1
        taken[count] = block_id
        count += 1
        if index[prefix_id] == block_id:
            index[prefix_id] = NO_BLOCK
        else:
            _drop_duplicate(pool, index, block_id, prefix_id)
        if first <= prefix_id <= last and is_watched[prefix_id]:
            counters.watch_is_stale = 1
    counters.back_head = source + i
    pool.cached_free_by_group[group_id] -= count
    counters.num_evicted += count
    return place + count


@compiled
def _drop_duplicate(pool, index, block_id, prefix_id):
    """Take one of several blocks with one identity out of the index."""
    later, earlier = pool.later[block_id], pool.earlier[block_id]
    pool.later[earlier] = later
    pool.earlier[later] = earlier
    first = -index[prefix_id]
    if first == block_id:
        first = later
    index[prefix_id] = first if pool.later[first] == first else -first


@compiled
def touch(pool, table, start, end, group_id):
    """Add a holder to the cached blocks of a range; those that were free leave the queue."""
    num_pulled = 0
    for i in range(start, end):
        block_id = table[i]
        if is_behind(pool, block_id):
            remove(pool, block_id)
            num_pulled += 1
        else:
            pool.blocks[block_id].other_holders += 1
    pool.cached_free_by_group[group_id] -= num_pulled
    pool.held_by_group[group_id] += num_pulled
    pool.counters[0].num_touched += end - start


@compiled
def free_cached_blocks(pool, table, start, end, group_id, prefix_ids, place, factor):
    """Take a holder away from each block of a range that is cached, the last one first.

    Block i is cached under ``prefix_ids[place + (i - start) * factor]``. Those without holders
    enter the queue at the back. No entry is null.
    """
    records, count = pool.blocks, 0
    first, n = room_behind(pool, end - start), end - start
    back, groups, prefixes = pool.back[first:], pool.back_group[first:], pool.back_prefix[first:]
    blocks, names = table[start:end], prefix_ids[place : place + n * factor : factor]
    for i in range(n):
        block_id = blocks[n - 1 - i]
        record = records[block_id]
        if record.other_holders:
            record.other_holders -= 1
        else:
            back[count] = block_id
            groups[count] = group_id
            prefixes[count] = names[n - 1 - i]
            record.position = first + count
            count += 1
    appended_to(pool, first + count)
    pool.held_by_group[group_id] -= count
    pool.cached_free_by_group[group_id] += count
    pool.counters[0].num_freed += n


@compiled
def free_empty_blocks(pool, table, start, end, group_id):
    """Give back the blocks of a range that cache nothing; nulls are skipped.

    Nobody shares them. They enter the queue at the front, the last one before the others.
    """
    num_blocks = 0
    for i in range(start, end):
        if table[i] != NULL_BLOCK:
            prepend(pool, table[i])
            num_blocks += 1
    pool.held_by_group[group_id] -= num_blocks
    pool.counters[0].num_freed += num_blocks


# -- the cache index -----------------------------------------------------------------------------
@compiled
def register_range(pool, group_id, table, start, end, prefix_ids, place, factor):
    """Register the blocks of a range, nulls left out, that are in use and cache nothing.

    Block i is cached under ``prefix_ids[place + (i - start) * factor]``.
    """
    is_watched, counters, n = pool.is_watched, pool.counters[0], end - start
    first, last = counters.watched_first, counters.watched_last
    index, num_nulls = pool.index[:, group_id], 0
    blocks, names = table[start:end], prefix_ids[place : place + n * factor : factor]
    for i in range(n):
        block_id, prefix_id = blocks[i], names[i]
        if block_id == NULL_BLOCK:
            num_nulls += 1
            continue
        if index[prefix_id] == NO_BLOCK:
            index[prefix_id] = block_id
        else:
            _add_duplicate(pool, index, block_id, prefix_id)
        if first <= prefix_id <= last and is_watched[prefix_id]:
            counters.watch_is_stale = 1
    counters.num_registered += n - num_nulls


@compiled
def _add_duplicate(pool, index, block_id, prefix_id):
    """Add a block behind those with the same identity."""
    first, later, earlier = index[prefix_id], pool.later, pool.earlier
    if first > 0:
        later[first] = earlier[first] = first
        index[prefix_id] = -first
    first = abs(first)
    last = earlier[first]
    earlier[block_id] = last
    later[block_id] = first
    later[last] = block_id
    earlier[first] = block_id
