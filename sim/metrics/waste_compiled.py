"""The partition of the KV memory in plain loops: the numbers of ``waste.WastePartition.sample``."""

from __future__ import annotations

import numpy as np

from sim.jit import compiled

# Columns of ``group_bytes``: the fields of ``waste.GroupBytes``.
LAYER_PADDING, PAGE_PADDING, CONTENT, BLOCK_SIZE, IS_STATE = 0, 1, 2, 3, 4

# Places in ``out``: the order of ``sim.tables.PARTS``.
(
    REMAINDER,
    NULL_BLOCK,
    FREE,
    LAYER_PADDING_BYTES,
    PAGE_PADDING_BYTES,
    REUSABLE,
    LOOKAHEAD,
    OUT_OF_WINDOW,
    TAIL,
    LIVE,
) = range(10)

# Places in ``sums``: of a group's held blocks, those without a computed token, and their tokens.
HELD, UNTOUCHED, COMPUTED, OUT = range(4)

# What a state's block is; the largest of its holders wins.
_LOOKAHEAD, _REUSABLE, _LIVE = 1, 2, 3


@compiled
def waste_parts(
    group_bytes: np.ndarray,
    scalars: np.ndarray,
    tables: np.ndarray,
    lengths: np.ndarray,
    touched: np.ndarray,
    row_of: np.ndarray,
    computed: np.ndarray,
    skipped: np.ndarray,
    other_holders: np.ndarray,
    cached_free: np.ndarray,
    num_free: int,
    scratch: np.ndarray,
    sums: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write the bytes of each part into ``out``; return the number of blocks with a holder.

    It is for the caller to check that free, held and null blocks are all blocks.

    Parameters
    ----------
    group_bytes : int64, shape (G, 5) : columns as the constants above
    scalars : int64, shape (3,) : blocks of the pool, bytes of a block, bytes of the KV memory
    tables : int32, shape (rows, max_len, G) : block ids; 0 is the null block
    lengths : int64, shape (rows, G) : entries of each table
    touched : int64, shape (rows, G) : the entries before it may be prefix hits. A block that
        several tables hold is the same entry of each, and a hit of all but one
    row_of : int64, shape (n,) : the rows of the requests that have tables
    computed : int64, shape (n,) : tokens computed of each
    skipped : int64, shape (n, G) : its first tokens that no later token reads
    other_holders : int32, shape (blocks of the pool,) : holders of each beyond the first
    cached_free : int64, shape (G,) : free blocks with content, by group
    num_free : all free blocks
    scratch : int32, shape (blocks of the pool,) : zeros, also afterwards
    sums : int64, shape (4,) : room
    out : int64, shape (10,)

    Cost: O(n log entries + hits + shared blocks x n); O(entries) for states.
    """
    out[:] = 0
    out[REMAINDER] = scalars[2] - scalars[0] * scalars[1]
    out[NULL_BLOCK] = scalars[1]
    num_held = num_cached = 0
    for g in range(len(group_bytes)):
        group = group_bytes[g]
        if group[IS_STATE]:
            held = _add_states(group, g, tables, lengths, row_of, computed, scratch, out)
        else:
            held = _add_slots(
                group,
                g,
                tables,
                lengths,
                touched,
                row_of,
                computed,
                skipped,
                other_holders,
                scratch,
                sums,
                out,
            )
        out[LAYER_PADDING_BYTES] += (held + cached_free[g]) * group[LAYER_PADDING]
        out[PAGE_PADDING_BYTES] += (held + cached_free[g]) * group[PAGE_PADDING]
        out[REUSABLE] += cached_free[g] * group[CONTENT]
        num_held += held
        num_cached += cached_free[g]
    out[FREE] = (num_free - num_cached) * scalars[1]
    return num_held


@compiled
def _add_slots(
    group: np.ndarray,
    g: int,
    tables: np.ndarray,
    lengths: np.ndarray,
    touched: np.ndarray,
    row_of: np.ndarray,
    computed: np.ndarray,
    skipped: np.ndarray,
    other_holders: np.ndarray,
    is_seen: np.ndarray,
    sums: np.ndarray,
    out: np.ndarray,
) -> int:
    """Add the content of an attention group's held blocks; return their number.

    Each table is counted as if nobody shared it, which takes no look at its entries; then the
    blocks that are shared are put right.
    """
    size = group[BLOCK_SIZE]
    sums[:] = 0
    for i in range(len(row_of)):
        length = lengths[row_of[i], g]
        first = _num_leading_nulls(tables[row_of[i], :, g], length)
        num_slots = (length - first) * size
        sums[HELD] += length - first
        sums[UNTOUCHED] += length - min(max(-(-computed[i] // size), first), length)
        sums[COMPUTED] += min(max(computed[i] - first * size, 0), num_slots)
        sums[OUT] += min(max(min(computed[i], skipped[i, g]) - first * size, 0), num_slots)
    for i in range(len(row_of)):
        row, end = tables[row_of[i], :, g], min(touched[row_of[i], g], lengths[row_of[i], g])
        for e in range(_num_leading_nulls(row, end), end):
            if other_holders[row[e]] and not is_seen[row[e]]:
                is_seen[row[e]] = 1
                _merge(size, g, e, row[e], tables, lengths, row_of, computed, skipped, sums)
    _clear(g, tables, touched, lengths, row_of, is_seen)
    _add_content(group, sums[HELD], sums[UNTOUCHED], sums[COMPUTED], sums[OUT], out)
    return sums[HELD]


@compiled
def _merge(
    size: int,
    g: int,
    e: int,
    block: int,
    tables: np.ndarray,
    lengths: np.ndarray,
    row_of: np.ndarray,
    computed: np.ndarray,
    skipped: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Count a block that is entry ``e`` of several tables once.

    It is as far computed as its furthest holder has it, and kept as far as any of them keeps it.
    """
    most_computed, least_skipped = 0, size
    for i in range(len(row_of)):
        if e >= lengths[row_of[i], g] or tables[row_of[i], e, g] != block:
            continue
        done = min(max(computed[i] - e * size, 0), size)
        gone = min(max(skipped[i, g] - e * size, 0), size)
        sums[HELD] -= 1
        sums[UNTOUCHED] -= done == 0
        sums[COMPUTED] -= done
        sums[OUT] -= min(done, gone)
        most_computed, least_skipped = max(most_computed, done), min(least_skipped, gone)
    sums[HELD] += 1
    sums[UNTOUCHED] += most_computed == 0
    sums[COMPUTED] += most_computed
    sums[OUT] += min(most_computed, least_skipped)


@compiled
def _clear(
    g: int,
    tables: np.ndarray,
    touched: np.ndarray,
    lengths: np.ndarray,
    row_of: np.ndarray,
    is_seen: np.ndarray,
) -> None:
    """Set the places of all blocks that may be shared back to 0."""
    for i in range(len(row_of)):
        row, end = tables[row_of[i], :, g], min(touched[row_of[i], g], lengths[row_of[i], g])
        for e in range(_num_leading_nulls(row, end), end):
            is_seen[row[e]] = 0


@compiled
def _add_content(
    group: np.ndarray,
    held: int,
    untouched: int,
    num_computed: int,
    num_out: int,
    out: np.ndarray,
) -> None:
    """Split the content of attention blocks, of which some hold no computed token."""
    content, size = group[CONTENT], group[BLOCK_SIZE]
    num_tail = (held - untouched) * size - num_computed
    slot_bytes = content // size
    out[LOOKAHEAD] += untouched * content
    out[OUT_OF_WINDOW] += num_out * slot_bytes
    out[TAIL] += num_tail * slot_bytes
    out[LIVE] += (held - untouched) * content - (num_out + num_tail) * slot_bytes


@compiled
def _num_leading_nulls(row: np.ndarray, length: int) -> int:
    """Null entries at the head of a table of [nulls, then blocks], by bisection."""
    if length == 0 or row[0] != 0:
        return 0
    low, high = 1, length
    while low < high:
        middle = (low + high) // 2
        if row[middle] != 0:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _add_states(
    group: np.ndarray,
    g: int,
    tables: np.ndarray,
    lengths: np.ndarray,
    row_of: np.ndarray,
    computed: np.ndarray,
    roles: np.ndarray,
    out: np.ndarray,
) -> int:
    """Add the states of a recurrent group's held blocks; return their number."""
    num_lookahead = num_reusable = num_live = 0
    for i in range(len(row_of)):
        row, newest = tables[row_of[i], :, g], (computed[i] - 1) // group[BLOCK_SIZE]
        for e in range(lengths[row_of[i], g]):
            if row[e] == 0:
                continue
            role = _LIVE
            if e != newest:
                role = _REUSABLE if e < newest else _LOOKAHEAD
            before = roles[row[e]]
            role = max(role, before)
            roles[row[e]] = role
            num_lookahead += int(role == _LOOKAHEAD) - int(before == _LOOKAHEAD)
            num_reusable += int(role == _REUSABLE) - int(before == _REUSABLE)
            num_live += int(role == _LIVE) - int(before == _LIVE)
    for i in range(len(row_of)):
        row = tables[row_of[i], :, g]
        for e in range(lengths[row_of[i], g]):
            roles[row[e]] = 0
    out[LOOKAHEAD] += num_lookahead * group[CONTENT]
    out[REUSABLE] += num_reusable * group[CONTENT]
    out[LIVE] += num_live * group[CONTENT]
    return num_lookahead + num_reusable + num_live
