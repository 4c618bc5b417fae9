"""The compiled half of the coordinator of several groups: the prefix that all of them can use."""

from __future__ import annotations

from sim.core.kv_cache_state_compiled import FULL
from sim.core.unitary_kv_cache_coordinator_compiled import find_longest_cache_hit as _look_up
from sim.jit import compiled


@compiled
def find_longest_cache_hit(m, request, max_length):
    """Lower the bound until every entry agrees; full attention is looked up once."""
    num_entries = len(m.members)
    leads_with_full = m.groups[m.members[0, 0]].kind == FULL
    length, longest, is_first_round = max_length, 0, True
    while True:
        found = length
        for entry in range(num_entries):
            group = m.groups[m.members[entry, 0]]
            if group.kind == FULL and not is_first_round:
                found = found // group.block_size * group.block_size
                continue
            found = _look_up(m, entry, request, found)
            longest = max(longest, found)
        is_first_round = False
        is_stable, length = found >= length, found
        if is_stable or (num_entries == 2 and leads_with_full):
            break
    if leads_with_full:
        _truncate(m, length)
    m.lookup[0].num_uncached_common_prefix_tokens = longest - length
    return length


@compiled
def _truncate(m, length):
    """Cut the rows of the first entry to the hit; other full entries keep theirs (Q3)."""
    for group_id in m.members[0]:
        if group_id < 0:
            break
        most = length // m.groups[group_id].block_size
        m.num_hits[group_id] = min(m.num_hits[group_id], most)
