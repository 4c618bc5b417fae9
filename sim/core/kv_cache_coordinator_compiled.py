"""The compiled half of the coordinators: one request, several groups, one answer."""

from __future__ import annotations

from sim.core import single_type_kv_cache_manager_compiled as single
from sim.core.hybrid_kv_cache_coordinator_compiled import (
    find_longest_cache_hit as _find_hybrid,
)
from sim.core.kv_cache_state_compiled import HYBRID
from sim.core.unitary_kv_cache_coordinator_compiled import (
    find_longest_cache_hit as _find_unitary,
)
from sim.jit import compiled

_add_local_computed_blocks = single.add_local_computed_blocks
_allocate_new_blocks = single.allocate_new_blocks
_cache_blocks = single.cache_blocks
_free = single.free
_get_num_blocks_to_allocate = single.get_num_blocks_to_allocate
_quiet_until = single.quiet_until
_remove_skipped_blocks = single.remove_skipped_blocks
NEVER = single.NEVER


@compiled
def find_longest_cache_hit(m, request, max_length):
    """Fill the rows of the groups; return the hit in tokens."""
    if m.config[0].coordinator == HYBRID:
        return _find_hybrid(m, request, max_length)
    return _find_unitary(m, 0, request, max_length)


@compiled
def get_num_blocks_to_allocate(m, request, num_tokens, has_hits, total_computed, main, has_cap):
    """Sum of the groups' predictions; has_hits: the rows of the last lookup are the request's."""
    total = count = 0
    for group_id in range(m.config[0].num_groups):
        if has_hits or not _is_like_the_last(m, group_id, request.row):
            num_hits = m.num_hits[group_id] if has_hits else 0
            count = _get_num_blocks_to_allocate(
                m, group_id, request, num_tokens, num_hits, total_computed, main, has_cap
            )
        total += count
    return total


@compiled
def _is_like_the_last(m, group_id, row):
    """Whether lengths alone say the same of a request as in the group before."""
    if not m.groups[group_id].is_like_the_last:
        return False
    if row < 0:
        return True
    note, last = m.tables.notes[row, group_id], m.tables.notes[row, group_id - 1]
    return note.length == last.length and note.num_cached_block == last.num_cached_block


@compiled
def allocate_new_computed_blocks(m, row, num_computed_tokens):
    """Begin the tables of a request with the hits of all groups."""
    for group_id in range(m.config[0].num_groups):
        _add_local_computed_blocks(m, group_id, row, m.num_hits[group_id], num_computed_tokens)


@compiled
def allocate_new_blocks(m, row, num_tokens, num_tokens_main_model):
    """Extend every table."""
    for group_id in range(m.config[0].num_groups):
        _allocate_new_blocks(m, group_id, row, num_tokens, num_tokens_main_model)


@compiled
def cache_blocks(m, request, num_computed_tokens):
    """Register full blocks, with several groups up to the last boundary that a hit may end at."""
    config, reach = m.config[0], num_computed_tokens
    if config.coordinator == HYBRID:
        reach = num_computed_tokens // config.scheduler_block_size * config.scheduler_block_size
    for group_id in range(config.num_groups):
        _cache_blocks(m, group_id, request.row, request, reach)


@compiled
def remove_skipped_blocks(m, request, total_computed_tokens):
    """Free what no later token of the request reads."""
    for group_id in range(m.config[0].num_groups):
        _remove_skipped_blocks(m, group_id, request, total_computed_tokens)


@compiled
def free(m, request):
    """Give back all tables, group by group."""
    for group_id in range(m.config[0].num_groups):
        _free(m, group_id, request)


@compiled
def quiet_until(m, row, num_computed_tokens):
    """Smallest token total at which a decoding request may change anything."""
    config, first = m.config[0], NEVER
    for group_id in range(config.num_groups):
        if _is_like_the_last(m, group_id, row):
            continue
        first = min(first, _quiet_until(m, group_id, row, num_computed_tokens))
        if config.enable_caching:
            first = min(first, _next_registration(m, group_id, row))
    return first


@compiled
def _next_registration(m, group_id, row):
    config, size = m.config[0], m.groups[group_id].block_size
    done = max(m.tables.notes[row, group_id].num_cached_block, 0)
    if config.coordinator == HYBRID:
        edge = config.scheduler_block_size
        return (done * size // edge + 1) * edge
    return (done + 1) * size
