"""The compiled half of the recount: whether everything holds, not what is wrong.

``sim.core.integrity`` finds words for what is broken, on the restored Python manager.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.core.block_pool_compiled import NO_BLOCK, NO_PREFIX, NULL_BLOCK
from sim.core.single_type_kv_cache_manager_compiled import prefix_at
from sim.jit import compiled
from sim.references import held

_OTHERWISE = -2  # two places say two things of a block


class Blocks(NamedTuple):
    """What there is to know of each block, counted; shape (B,).

    holders : int32, tables that name it; is_free : uint8, whether the queue does
    prefix_id : int64, under what it is cached by the place where it is; group : int32, likewise
    """

    holders: np.ndarray
    is_free: np.ndarray
    prefix_id: np.ndarray
    group: np.ndarray


def counted(state, running, num_blocks):
    """Return what the queue and the tables say of each block, and whether they agree.

    running : records of the requests that have tables

    Cost: O(pool + tables).
    """
    blocks = Blocks(
        np.zeros(num_blocks, np.int32),
        np.zeros(num_blocks, np.uint8),
        np.full(num_blocks, NO_PREFIX),
        np.full(num_blocks, -1, np.int32),
    )
    records = np.array(running, np.int32)
    return blocks, bool(_count(held(state), records, held(blocks)))


def is_intact(state, running, num_blocks, num_groups, num_prefix_ids):
    """Return whether all laws hold that ``check_integrity`` knows; see ``counted``.

    Cost: O(pool + tables + index).
    """
    blocks, agree = counted(state, running, num_blocks)
    counts = np.zeros((4, num_groups), np.int64)
    return agree and bool(_is_intact(held(state), held(blocks), counts, num_prefix_ids))


@compiled
def _count(m, running, blocks):
    return _count_queue(m.pool, blocks) and _count_tables(m, running, blocks)


@compiled
def _is_intact(m, blocks, counts, num_prefix_ids):
    return _has_good_blocks(m.pool, blocks, counts) and _has_good_index(
        m.pool, blocks, counts, num_prefix_ids
    )


@compiled
def _count_queue(pool, blocks):
    """Whether the queue names as many distinct blocks as it says; marks them."""
    counters, count = pool.counters[0], 0
    for place in range(counters.front_length):
        count += _mark(blocks, pool.front[place], NO_PREFIX, -1)
    for place in range(counters.back_head, counters.back_length):
        block_id = pool.back[place]
        if block_id == NO_BLOCK:
            continue
        if pool.blocks[block_id].position != place:
            return False
        count += _mark(blocks, block_id, pool.back_prefix[place], pool.back_group[place])
    return count == counters.num_free_blocks


@compiled
def _mark(blocks, block_id, prefix_id, group_id):
    """Mark a free block; 1, or a number that spoils the sum if it is none or marked already."""
    if not 0 < block_id < len(blocks.is_free) or blocks.is_free[block_id]:
        return -len(blocks.is_free)
    blocks.is_free[block_id] = 1
    blocks.prefix_id[block_id], blocks.group[block_id] = prefix_id, group_id
    return 1


@compiled
def _count_tables(m, running, blocks):
    """Count holders; whether each block in a table is its group's, once per table."""
    for i in range(len(running)):
        request = m.requests[running[i]]
        if request.row < 0:
            continue
        for group_id in range(m.config[0].num_groups):
            note = m.tables.notes[request.row, group_id]
            if note.num_cached_block > note.length or note.last_state_block_idx >= note.length:
                return False
            if not _count_table(m, group_id, request, blocks):
                return False
    return True


@compiled
def _count_table(m, group_id, request, blocks):
    """Count the blocks of a table; whether all can be there."""
    note, table = m.tables.notes[request.row, group_id], m.tables.blocks[request.row, :, group_id]
    for place in range(note.length):
        block_id = table[place]
        if block_id == NULL_BLOCK:
            continue
        if place < note.num_nulls or not 0 < block_id < len(blocks.holders):
            return False
        prefix_id = prefix_at(m, group_id, request, place)
        if blocks.holders[block_id] == 0 and not blocks.is_free[block_id]:
            blocks.group[block_id], blocks.prefix_id[block_id] = group_id, prefix_id
        elif blocks.group[block_id] != group_id or blocks.prefix_id[block_id] != prefix_id:
            blocks.prefix_id[block_id] = _OTHERWISE
        blocks.holders[block_id] += 1
    return True


@compiled
def _has_good_blocks(pool, blocks, counts):
    """Whether each block has its holders, or is free; counts held, cached and cached free ones."""
    for block_id in range(1, len(blocks.holders)):
        holders, group_id = blocks.holders[block_id], blocks.group[block_id]
        prefix_id = blocks.prefix_id[block_id]
        if (holders == 0) != (blocks.is_free[block_id] == 1) or prefix_id == _OTHERWISE:
            return False
        if pool.blocks[block_id].other_holders != max(holders - 1, 0):
            return False
        if holders > 0:
            counts[0, group_id] += 1
        if prefix_id >= 0:
            counts[1, group_id] += 1
            counts[2, group_id] += holders == 0
    for group_id in range(len(pool.held_by_group)):
        if counts[0, group_id] != pool.held_by_group[group_id]:
            return False
        if counts[2, group_id] != pool.cached_free_by_group[group_id]:
            return False
    return pool.blocks[NULL_BLOCK].other_holders == 0


@compiled
def _has_good_index(pool, blocks, counts, num_prefix_ids):
    """Whether each entry leads to blocks that say the same, and every cached block is there."""
    found = counts[3]
    for prefix_id in range(num_prefix_ids):
        for group_id in range(len(found)):
            first = pool.index[prefix_id, group_id]
            if first > 0:
                found[group_id] += _says(blocks, first, group_id, prefix_id)
            elif first < 0:
                found[group_id] += _ring_length(pool, blocks, -first, group_id, prefix_id)
    num_wrong = 0
    for group_id in range(len(found)):
        num_wrong += found[group_id] != counts[1, group_id]
    return num_wrong == 0


@compiled
def _says(blocks, block_id, group_id, prefix_id):
    """1 if a block is cached under an identity, else a number that spoils the sum."""
    if blocks.prefix_id[block_id] == prefix_id and blocks.group[block_id] == group_id:
        return 1
    return -len(blocks.group)


@compiled
def _ring_length(pool, blocks, first, group_id, prefix_id):
    """Blocks of a ring under an identity; a number that spoils the sum if one says otherwise."""
    block_id, length = first, 0
    while True:
        length += _says(blocks, block_id, group_id, prefix_id)
        if pool.earlier[pool.later[block_id]] != block_id or not 0 <= length < len(blocks.group):
            return -len(blocks.group)
        block_id = pool.later[block_id]
        if block_id == first:
            return length if length > 1 else -len(blocks.group)
