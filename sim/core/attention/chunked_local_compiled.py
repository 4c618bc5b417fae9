"""The compiled half of chunked local attention: a hit needs the current chunk only."""

from __future__ import annotations

from sim.core.attention.full_compiled import leading_blocks
from sim.jit import compiled


@compiled
def find_longest_cache_hit(m, entry, request, max_length, alignment_tokens):
    """Find nulls up to the chunk and then the chunk's leading blocks that all groups have."""
    members = m.members[entry]
    group = m.groups[members[0]]
    start = max_length // group.span * group.span // group.block_size
    end = max_length // group.block_size
    for group_id in members:
        if group_id < 0:
            break
        end = leading_blocks(m, group_id, request, start, end)
    for group_id in members:
        if group_id < 0:
            break
        m.hit_first[group_id] = start
        m.num_hits[group_id] = end
    return end
