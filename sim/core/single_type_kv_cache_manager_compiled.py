"""The compiled half of the attention kinds' contract: tables of one request in one group.

``m`` is the state (``kv_cache_state_compiled.Manager``), ``group_id`` the group, ``row`` the row of
a request's tables. Recurrent groups differ in most of it: ``attention/mamba_compiled.py``.
"""

from __future__ import annotations

import numpy as np

from sim.core.attention.mamba_compiled import (
    allocate_state,
    is_made_in_this_step,
    last_state_to_free,
    next_clearing_of_state,
    num_states_to_allocate,
    quiet_until_of_states,
)
from sim.core.block_pool_compiled import (
    NO_PREFIX,
    NULL_BLOCK,
    free_cached_blocks,
    free_empty_blocks,
    get_new_blocks,
    register_range,
    touch,
)
from sim.core.eviction.lru_compiled import is_behind
from sim.core.kv_cache_state_compiled import (
    CHUNKED_LOCAL,
    FULL,
    MAMBA,
    MAMBA_ALIGN,
    SLIDING_WINDOW,
)
from sim.jit import compiled

NEVER = 1 << 62


@compiled
def cdiv(a, b):
    """Return a / b, rounded up."""
    return -(-a // b)


# -- what a kind decides -------------------------------------------------------------------------
@compiled
def get_num_skipped_tokens(group, num_computed_tokens):
    """Tokens at the front that computing token ``num_computed_tokens`` does not read."""
    if group.kind == FULL:
        return 0
    if group.kind == SLIDING_WINDOW:
        return max(0, num_computed_tokens - group.span + 1)
    if group.kind == CHUNKED_LOCAL:
        return num_computed_tokens // group.span * group.span
    return num_computed_tokens - 1


@compiled
def _num_skipped_blocks(group, num_computed_tokens):
    return max(get_num_skipped_tokens(group, num_computed_tokens), 0) // group.block_size


# -- prediction ----------------------------------------------------------------------------------
@compiled
def get_num_blocks_to_allocate(
    m,
    group_id,
    request,
    num_tokens,
    num_hits,
    total_computed_tokens,
    num_tokens_main_model,
    has_cap,
):
    """Predict how many blocks leave the free queue when a request grows to ``num_tokens``.

    num_hits : entries of the group's row of the last lookup, 0 for a request without hits
    """
    group, row = m.groups[group_id], request.row
    hits, first = m.hits[group_id], m.hit_first[group_id]
    have, is_known = 0, False
    if row >= 0:
        have = m.tables.notes[row, group_id].length
        is_known = m.tables.notes[row, group_id].num_cached_block >= 0
    if group.kind >= MAMBA and num_hits and is_made_in_this_step(m, group_id, request, num_hits):
        return m.config[0].num_gpu_blocks + 1
    if group.kind == MAMBA_ALIGN:
        new = num_states_to_allocate(m, group_id, row, have + num_hits, num_tokens_main_model)
        return new + _num_evictable(m.pool, hits, first, num_hits)
    required = cdiv(num_tokens, group.block_size) + group.num_speculative_blocks
    if has_cap and group.max_admission_blocks >= 0:
        required = min(required, group.max_admission_blocks)
    if is_known:
        return max(required - have, 0)
    skipped = _num_skipped_blocks(group, total_computed_tokens)
    new = max(required - max(skipped, num_hits + have), 0)
    return new + _num_evictable(m.pool, hits, max(first, skipped - have), num_hits)


@compiled
def _num_evictable(pool, hits, start, end):
    """Blocks of a range of hits that lie in the free queue."""
    count = 0
    for i in range(start, end):
        count += is_behind(pool, hits[i])
    return count


# -- allocation ----------------------------------------------------------------------------------
@compiled
def add_local_computed_blocks(m, group_id, row, num_hits, num_computed_tokens):
    """Begin the table of a request with the blocks that it hit."""
    table, note = m.tables.blocks[row, :, group_id], m.tables.notes[row, group_id]
    skipped = _num_skipped_blocks(m.groups[group_id], num_computed_tokens)
    start = max(skipped, m.hit_first[group_id])
    table[:start] = NULL_BLOCK
    for i in range(start, num_hits):
        table[i] = m.hits[group_id, i]
    if start < num_hits:
        touch(m.pool, table, start, num_hits, group_id)
    note.length = note.num_cached_block = max(skipped, num_hits)
    note.num_touched = num_hits
    note.num_nulls = start


@compiled
def allocate_new_blocks(m, group_id, row, num_tokens, num_tokens_main_model):
    """Extend the table to hold ``num_tokens``; return how many entries were appended."""
    group, note = m.groups[group_id], m.tables.notes[row, group_id]
    if group.kind == MAMBA_ALIGN:
        return allocate_state(m, group_id, row, num_tokens_main_model)
    length = note.length
    count = cdiv(num_tokens, group.block_size) + group.num_speculative_blocks - length
    if count <= 0:
        return 0
    get_new_blocks(m.pool, count, group_id, m.tables.blocks[row, :, group_id], length)
    note.length = length + count
    return count


@compiled
def cache_blocks(m, group_id, row, request, num_tokens):
    """Register the full blocks among the first ``num_tokens`` that were not dealt with."""
    group, note = m.groups[group_id], m.tables.notes[row, group_id]
    done = max(note.num_cached_block, 0)
    full = num_tokens // group.block_size
    if done >= full:
        return
    table, place = m.tables.blocks[row, :, group_id], request.prefix_ids_start - 1
    if group.keeps_all:
        first = place + (done + 1) * group.factor
        register_range(m.pool, group_id, table, done, full, m.prefix_ids, first, group.factor)
    else:
        edge = _replay_edge(m.config[0], group, request.num_prompt_tokens)
        for i in range(done, full):
            if _is_reachable(group, i, edge):
                here = place + (i + 1) * group.factor
                register_range(m.pool, group_id, table, i, i + 1, m.prefix_ids, here, 1)
    note.num_cached_block = full
    if group.kind >= MAMBA:
        _note_states(m, group_id, request, done, full)


@compiled
def _note_states(m, group_id, request, start, end):
    """Note which states this step makes: those of a range that were registered just now."""
    for i in range(start, end):
        prefix_id = prefix_at(m, group_id, request, i)
        if prefix_id != NO_PREFIX:
            m.made_at[group_id, prefix_id] = m.lookup[0].step


@compiled
def prefix_at(m, group_id, request, i):
    """Return under what entry i of a table is cached, if it is: what was hit or registered."""
    group, note = m.groups[group_id], m.tables.notes[request.row, group_id]
    if i >= note.num_cached_block or m.tables.blocks[request.row, i, group_id] == NULL_BLOCK:
        return NO_PREFIX
    if i >= note.num_touched and not group.keeps_all:
        edge = _replay_edge(m.config[0], group, request.num_prompt_tokens)
        if not _is_reachable(group, i, edge):
            return NO_PREFIX
    return np.int64(m.prefix_ids[request.prefix_ids_start + (i + 1) * group.factor - 1])


@compiled
def _replay_edge(config, group, num_prompt_tokens):
    """Entry behind the last one that an exact replay of the prompt needs, -1 if not asked for."""
    if config.retention_interval < 0 or group.keeps_all:
        return -1
    size = config.scheduler_block_size
    return (num_prompt_tokens - 1) // size * size // group.block_size


@compiled
def _is_reachable(group, i, edge):
    """Whether a later lookup can reach full block ``i``: ``reachable_block_mask`` of one block."""
    period = group.mask_period
    if group.kind == SLIDING_WINDOW:
        if period > 0 and i % period >= period - group.num_needed:
            return True
        return edge - group.num_needed <= i < edge
    return (period > 0 and (i + 1) % period == 0) or i == edge - 1


# -- giving back ---------------------------------------------------------------------------------
@compiled
def remove_skipped_blocks(m, group_id, request, total_computed_tokens):
    """Free the blocks that no later token reads; their entries become null."""
    group = m.groups[group_id]
    if group.kind == FULL:
        return
    computed = total_computed_tokens
    if group.kind >= MAMBA:
        computed = max(0, total_computed_tokens - group.num_speculative_blocks)
    skipped = get_num_skipped_tokens(group, computed)
    if skipped >= group.block_size:
        _clear_before(m, group_id, request, skipped // group.block_size)
    if group.kind == MAMBA_ALIGN:
        idx = last_state_to_free(m, group_id, request.row, computed)
        if idx >= 0:
            _clear(m, group_id, request, idx, idx + 1)


@compiled
def _clear_before(m, group_id, request, end):
    """Null the entries before ``end``, from the right, up to the first that is null already."""
    table, note = m.tables.blocks[request.row, :, group_id], m.tables.notes[request.row, group_id]
    end, first = min(end, note.length), note.num_nulls
    if m.groups[group_id].kind >= MAMBA:
        # Only states leave nulls behind an entry; windows and chunks free from the left.
        first = end
        while first > note.num_nulls and table[first - 1] != NULL_BLOCK:
            first -= 1
    if first < end:
        _clear(m, group_id, request, first, end)
    if first == note.num_nulls:
        note.num_nulls = max(first, end)


@compiled
def _give_back(m, group_id, request, start, end):
    """Free the blocks of a range of entries, the last one first; those without content at last."""
    group, note = m.groups[group_id], m.tables.notes[request.row, group_id]
    table, factor = m.tables.blocks[request.row, :, group_id], group.factor
    place = request.prefix_ids_start - 1 + (start + 1) * factor
    if not group.keeps_all or group.kind >= MAMBA:
        _give_back_one_by_one(m, group_id, request, start, end)
        return
    cached_end = min(max(start, note.num_cached_block), end)
    if start < cached_end:
        free_cached_blocks(m.pool, table, start, cached_end, group_id, m.prefix_ids, place, factor)
    if cached_end < end:
        free_empty_blocks(m.pool, table, cached_end, end, group_id)


@compiled
def _give_back_one_by_one(m, group_id, request, start, end):
    table, factor = m.tables.blocks[request.row, :, group_id], m.groups[group_id].factor
    first = request.prefix_ids_start - 1
    for i in range(end - 1, start - 1, -1):
        if prefix_at(m, group_id, request, i) != NO_PREFIX:
            place = first + (i + 1) * factor
            free_cached_blocks(m.pool, table, i, i + 1, group_id, m.prefix_ids, place, 1)
    for i in range(start, end):
        if prefix_at(m, group_id, request, i) == NO_PREFIX:
            free_empty_blocks(m.pool, table, i, i + 1, group_id)


@compiled
def _clear(m, group_id, request, start, end):
    """Free the blocks of a range of entries, which become null."""
    _give_back(m, group_id, request, start, end)
    m.tables.blocks[request.row, start:end, group_id] = NULL_BLOCK


@compiled
def free(m, group_id, request):
    """Give back the whole table, the last block first."""
    note = m.tables.notes[request.row, group_id]
    _give_back(m, group_id, request, note.num_nulls, note.length)
    note.length = note.num_nulls = note.num_touched = note.is_allocated = 0
    note.num_cached_block = note.last_state_block_idx = -1


# -- the quiet horizon ---------------------------------------------------------------------------
@compiled
def quiet_until(m, group_id, row, num_computed_tokens):
    """Smallest total of tokens at which a request that decodes may change anything here."""
    group = m.groups[group_id]
    length = m.tables.notes[row, group_id].length
    if group.kind >= MAMBA and group.num_speculative_blocks:
        return quiet_until_of_states(group, length, num_computed_tokens)
    return min(length * group.block_size + 1, _next_clearing(group, num_computed_tokens))


@compiled
def _next_clearing(group, num_computed_tokens):
    size = group.block_size
    if group.kind == FULL:
        return NEVER
    if group.kind == SLIDING_WINDOW:
        return (_num_skipped_blocks(group, num_computed_tokens) + 1) * size + group.span
    if group.kind == CHUNKED_LOCAL:
        return get_num_skipped_tokens(group, num_computed_tokens) + group.span + 1
    return next_clearing_of_state(group, num_computed_tokens)
