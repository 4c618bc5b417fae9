"""The compiled half of sliding window attention: a hit needs the last blocks only."""

from __future__ import annotations

from sim.core.block_pool_compiled import NO_BLOCK
from sim.jit import compiled


@compiled
def find_longest_cache_hit(m, entry, request, max_length, alignment_tokens):
    """Find nulls and then the blocks of the last cached window before an aligned edge."""
    members = m.members[entry]
    group = m.groups[members[0]]
    size = group.block_size
    step, need = alignment_tokens // size, max(group.num_needed, 1)
    end, start = max_length // size // step * step, 0
    while end > 0:
        start = max(end - need, 0)
        miss = _first_miss(m, members, request, start, end)
        if miss == end:
            break
        end = miss // step * step
    if end <= 0:
        start = end = 0
    for group_id in members:
        if group_id < 0:
            break
        m.hit_first[group_id] = min(start, end)
        m.num_hits[group_id] = end
    return end


@compiled
def _first_miss(m, members, request, start, end):
    """Write the window's blocks to the hits of all groups up to the first that one of them lacks.

    Returns its place, or ``end``.
    """
    index, hits, factor = m.pool.index, m.hits, m.groups[members[0]].factor
    place = request.prefix_ids_start + (start + 1) * factor - 1
    for i in range(start, end):
        prefix_id = m.prefix_ids[place]
        for group_id in members:
            if group_id < 0:
                break
            block_id = index[prefix_id, group_id]
            if block_id == NO_BLOCK:
                return i
            hits[group_id, i] = abs(block_id)
        place += factor
    return end
