"""The compiled half of ``lru``: the same stack before the same list, as arrays."""

from __future__ import annotations

from sim.jit import compiled

_TOMBSTONE = 0  # the null block is never free


@compiled
def popleft_n(pool, n, taken, start):
    """Write the first ``n`` free blocks to taken[start : start + n]; there are so many."""
    counters, front, back = pool.counters[0], pool.front, pool.back
    length = counters.front_length
    from_front = min(n, length)
    for i in range(from_front):
        taken[start + i] = front[length - 1 - i]
    counters.front_length = length - from_front
    place, i = counters.back_head, from_front
    while i < n:
        block_id = back[place]
        place += 1
        if block_id != _TOMBSTONE:
            taken[start + i] = block_id
            i += 1
    counters.back_head = place
    counters.num_free_blocks -= n


@compiled
def remove(pool, block_id):
    """Pull a cached block out, wherever it stands."""
    pool.back[pool.blocks[block_id].position] = _TOMBSTONE
    pool.counters[0].num_free_blocks -= 1


@compiled
def prepend(pool, block_id):
    """Put a block before all others."""
    counters = pool.counters[0]
    pool.front[counters.front_length] = block_id
    counters.front_length += 1
    counters.num_free_blocks += 1


@compiled
def room_behind(pool, n):
    """Return the place behind all others, with room for ``n`` blocks.

    The caller writes blocks to ``back`` from there, each with its ``position``.
    """
    if pool.counters[0].back_length + n > len(pool.back):
        _compact(pool)
    return pool.counters[0].back_length


@compiled
def appended_to(pool, place):
    """Take what was written up to ``place`` for members."""
    counters = pool.counters[0]
    counters.num_free_blocks += place - counters.back_length
    counters.back_length = place


@compiled
def _compact(pool):
    """Move what is left to the beginning; at most half of the array is in use then."""
    counters, back = pool.counters[0], pool.back
    length = 0
    for place in range(counters.back_head, counters.back_length):
        block_id = back[place]
        if block_id != _TOMBSTONE:
            back[length] = block_id
            pool.blocks[block_id].position = length
            length += 1
    counters.back_head = 0
    counters.back_length = length


def get_all_free_blocks(pool):
    """Return the ids from head to tail. Cost: O(pool)."""
    counters = pool.counters[0]
    front = pool.front[: counters.front_length][::-1].tolist()
    back = pool.back[counters.back_head : counters.back_length].tolist()
    return front + [block_id for block_id in back if block_id != _TOMBSTONE]
