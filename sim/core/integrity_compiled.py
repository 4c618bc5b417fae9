"""The compiled half of the recount: whether everything holds, not what is wrong.

``sim.core.integrity`` finds words for what is broken, on the restored Python manager.
"""

from __future__ import annotations

import numpy as np

from sim.core.block_pool_compiled import NO_BLOCK, NULL_BLOCK
from sim.jit import compiled


def is_intact(m, running, num_blocks, num_groups):
    """Return whether all laws hold that ``check_integrity`` knows; ``m`` is a held state.

    running : int32, records of the requests that have tables

    Cost: O(pool + tables + index).
    """
    holders, is_free = np.zeros(num_blocks, np.int32), np.zeros(num_blocks, np.uint8)
    counts = np.zeros((3, num_groups), np.int64)
    return bool(_is_intact(m, running, holders, is_free, counts))


@compiled
def _is_intact(m, running, holders, is_free, counts):
    return (
        _has_good_queue(m.pool, is_free)
        and _has_good_tables(m, running, holders)
        and _has_good_blocks(m.pool, holders, is_free, counts)
        and _has_good_index(m.pool, counts)
    )


@compiled
def _has_good_queue(pool, is_free):
    """Whether the queue names as many distinct blocks as it says; marks them."""
    counters, count = pool.counters[0], 0
    for place in range(counters.front_length):
        count += _mark(pool, is_free, pool.front[place])
    for place in range(counters.back_head, counters.back_length):
        block_id = pool.back[place]
        if block_id == NO_BLOCK:
            continue
        if pool.blocks[block_id].position != place:
            return False
        count += _mark(pool, is_free, block_id)
    return count == counters.num_free_blocks


@compiled
def _mark(pool, is_free, block_id):
    """Mark a free block; 1, or a number that spoils the sum if it is none or marked already."""
    if not 0 < block_id < len(is_free) or is_free[block_id]:
        return -len(is_free)
    is_free[block_id] = 1
    return 1


@compiled
def _has_good_tables(m, running, holders):
    """Count holders; whether each block in a table is its group's, once per table."""
    for i in range(len(running)):
        row = m.requests[running[i]].row
        for group_id in range(m.config[0].num_groups):
            note, table = m.tables.notes[row, group_id], m.tables.blocks[row, group_id]
            if note.num_cached_block > note.length or note.last_state_block_idx >= note.length:
                return False
            for place in range(note.length):
                block_id = table[place]
                if block_id == NULL_BLOCK:
                    continue
                if place < note.num_nulls or not 0 < block_id < len(holders):
                    return False
                if m.pool.blocks[block_id].group_id != group_id:
                    return False
                holders[block_id] += 1
    return True


@compiled
def _has_good_blocks(pool, holders, is_free, counts):
    """Whether each block has its holders, or is free; counts held and cached free ones."""
    for block_id in range(1, len(holders)):
        block = pool.blocks[block_id]
        if block.ref_cnt != holders[block_id] or (block.ref_cnt == 0) != (is_free[block_id] == 1):
            return False
        if block.ref_cnt > 0:
            counts[0, block.group_id] += 1
        if block.prefix_id >= 0:
            counts[1, block.group_id] += 1
            counts[2, block.group_id] += block.ref_cnt == 0
    for group_id in range(len(pool.held_by_group)):
        if counts[0, group_id] != pool.held_by_group[group_id]:
            return False
        if counts[2, group_id] != pool.cached_free_by_group[group_id]:
            return False
    return pool.blocks[NULL_BLOCK].ref_cnt > 0 and pool.blocks[NULL_BLOCK].prefix_id < 0


@compiled
def _has_good_index(pool, counts):
    """Whether each entry leads to blocks that say the same, and every cached block is there."""
    groups, size = pool.index.shape
    for group_id in range(groups):
        found = 0
        for prefix_id in range(size):
            first = pool.index[group_id, prefix_id]
            if first != NO_BLOCK:
                found += _ring_length(pool, group_id, prefix_id, first)
        if found != counts[1, group_id]:
            return False
    return True


@compiled
def _ring_length(pool, group_id, prefix_id, first):
    """Blocks cached under an identity; a number that spoils the sum if one says otherwise."""
    blocks, block_id, length = pool.blocks, first, 0
    while True:
        block = blocks[block_id]
        if block.prefix_id != prefix_id or block.group_id != group_id:
            return -len(blocks)
        if blocks[block.later].earlier != block_id or length > len(blocks):
            return -len(blocks)
        length += 1
        block_id = block.later
        if block_id == first:
            return length
