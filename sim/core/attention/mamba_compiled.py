"""The compiled half of recurrent groups: states at the ends of steps or at block boundaries."""

from __future__ import annotations

from sim.core.block_pool_compiled import NULL_BLOCK, get_new_blocks
from sim.core.kv_cache_state_compiled import MAMBA_ALIGN
from sim.jit import compiled


# -- lookup --------------------------------------------------------------------------------------
@compiled
def find_longest_cache_hit(m, entry, request, max_length, alignment_tokens):
    """Find the last aligned state that all groups of the entry have; return the hit's blocks."""
    members, index = m.members[entry], m.pool.index
    group = m.groups[members[0]]
    step = alignment_tokens // group.block_size
    end = max_length // group.block_size // step * step
    place = request.prefix_ids_start - 1
    while end > 0 and not _all_have(index, members, m.prefix_ids[place + end * group.factor]):
        end -= step
    for group_id in members:
        if group_id < 0:
            break
        m.hit_first[group_id] = m.num_hits[group_id] = end
        if end:
            m.hit_first[group_id] = end - 1
            prefix_id = m.prefix_ids[place + end * group.factor]
            m.hits[group_id, end - 1] = abs(index[prefix_id, group_id])
    return end


@compiled
def _all_have(index, members, prefix_id):
    for group_id in members:
        if group_id < 0:
            break
        if index[prefix_id, group_id] == NULL_BLOCK:
            return False
    return True


# -- prediction ----------------------------------------------------------------------------------
@compiled
def is_made_in_this_step(m, group_id, request, num_hits):
    """Whether the last hit is a state that the step in the making is to compute."""
    place = request.prefix_ids_start - 1 + num_hits * m.groups[group_id].factor
    return m.made_at[group_id, m.prefix_ids[place]] == m.lookup[0].step


@compiled
def num_states_to_allocate(m, group_id, row, num_there, num_tokens_main_model):
    """Predict the blocks to take in align mode; num_there counts table entries and hits."""
    group = m.groups[group_id]
    new = _required_blocks(group, num_tokens_main_model) - num_there
    if new > 0:
        is_allocated = row >= 0 and m.tables.notes[row, group_id].is_allocated
        new = 1 + (0 if is_allocated else group.num_speculative_blocks)
    return new


@compiled
def _required_blocks(group, num_tokens):
    return -(-num_tokens // group.block_size) + group.num_speculative_blocks


# -- allocation ----------------------------------------------------------------------------------
@compiled
def allocate_state(m, group_id, row, num_tokens_main_model):
    """Extend the table; the running state goes to the entry of its step's end."""
    group, note = m.groups[group_id], m.tables.notes[row, group_id]
    table, speculative = m.tables.blocks[row, :, group_id], group.num_speculative_blocks
    required, before = _required_blocks(group, num_tokens_main_model), note.length
    if required <= before:
        return 0
    if note.is_allocated:
        note.last_state_block_idx = before - 1 - speculative
    elif before:
        note.last_state_block_idx = before - 1
    running = required - speculative - 1
    length = max(before, running)
    table[before:length] = NULL_BLOCK
    if note.is_allocated:
        # The blocks of earlier speculative slots before the running state are used again.
        for idx in range(before - speculative, min(before, running)):
            table[length] = table[idx]
            table[idx] = NULL_BLOCK
            length += 1
    get_new_blocks(m.pool, required - length, group_id, table, length)
    note.length = required
    note.is_allocated = 1
    return required - before


# -- giving back ---------------------------------------------------------------------------------
@compiled
def last_state_to_free(m, group_id, row, num_computed_tokens):
    """Entry of the state before the running one, which nulls hide from the base clearing; or -1."""
    note, size = m.tables.notes[row, group_id], m.groups[group_id].block_size
    idx = note.last_state_block_idx
    if idx < 0 or idx >= -(-num_computed_tokens // size) - 1:
        return -1
    return -1 if m.tables.blocks[row, idx, group_id] == NULL_BLOCK else idx


# -- the quiet horizon ---------------------------------------------------------------------------
@compiled
def quiet_until_of_states(group, length, num_computed_tokens):
    """With speculation: 0 in align mode, for then every step may move a block."""
    if group.kind == MAMBA_ALIGN:
        return 0
    end = (length - group.num_speculative_blocks) * group.block_size + 1
    return min(end, next_clearing_of_state(group, num_computed_tokens))


@compiled
def next_clearing_of_state(group, num_computed_tokens):
    """Return the total of tokens at which the state before the running one can go."""
    computed = num_computed_tokens - group.num_speculative_blocks
    next_block = max(computed - 1, 0) // group.block_size + 1
    return next_block * group.block_size + group.num_speculative_blocks + 2
