"""The compiled half of full attention: a hit needs every block."""

from __future__ import annotations

from sim.core.block_pool_compiled import NO_BLOCK
from sim.jit import compiled


@compiled
def find_longest_cache_hit(m, entry, request, max_length, alignment_tokens):
    """Find the longest prefix that every group of the entry has; return the hit's blocks."""
    members = m.members[entry]
    group = m.groups[members[0]]
    length = min(max_length // group.block_size, request.num_prefix_ids // group.factor)
    for group_id in members:
        if group_id < 0:
            break
        length = leading_blocks(m, group_id, request, 0, length)
    while length * group.block_size % alignment_tokens:
        length -= 1
    for group_id in members:
        if group_id < 0:
            break
        m.hit_first[group_id] = 0
        m.num_hits[group_id] = length
    return length


@compiled
def leading_blocks(m, group_id, request, start, end):
    """Write the blocks of identities [start, end) to the group's hits; stop at the first miss.

    Returns the place of the miss, or ``end``.
    """
    index, hits, prefix_ids = m.pool.index[:, group_id], m.hits[group_id], m.prefix_ids
    factor = m.groups[group_id].factor
    place = request.prefix_ids_start + (start + 1) * factor - 1
    for i in range(start, end):
        block_id = index[prefix_ids[place]]
        if block_id == NO_BLOCK:
            return i
        hits[i] = abs(block_id)
        place += factor
    return end
