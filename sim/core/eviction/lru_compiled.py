"""The compiled half of ``lru``: the same stack before the same list, as arrays.

In the list each block has beside it what it caches (``block_pool_compiled``). A block that was
pulled out leaves a tombstone.
"""

from __future__ import annotations

from sim.jit import compiled

_TOMBSTONE = 0  # the null block is never free
_SHORT_WAY = 8192


@compiled
def take_from_front(pool, n, taken, start):
    """Write at most ``n`` blocks from the stack to taken[start:]; return how many."""
    counters, front = pool.counters[0], pool.front
    length = counters.front_length
    n = min(n, length)
    for i in range(n):
        taken[start + i] = front[length - 1 - i]
    counters.front_length = length - n
    return n


@compiled
def take_from_behind(pool):
    """Return the place of the first block of the list; there is one. The caller moves on."""
    place, back = pool.counters[0].back_head, pool.back
    while back[place] == _TOMBSTONE:
        place += 1
    return place


@compiled
def is_behind(pool, block_id):
    """Whether a block is in the list: one that is cached has no holder then."""
    place, counters = pool.blocks[block_id].position, pool.counters[0]
    return counters.back_head <= place < counters.back_length and pool.back[place] == block_id


@compiled
def remove(pool, block_id):
    """Pull a block out of the list, wherever it stands."""
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

    The caller writes blocks from there, what they cache, and each one's ``position``. The list is
    moved to the beginning of its array long before that is full: a short way round stays in the
    processor's cache. What is moved is a quarter of what was appended since, or less.
    """
    counters = pool.counters[0]
    end, live = counters.back_length + n, counters.num_free_blocks - counters.front_length
    if end > min(len(pool.back), 5 * live + _SHORT_WAY):
        _compact(pool)
    return counters.back_length


@compiled
def appended_to(pool, place):
    """Take what was written up to ``place`` for members."""
    counters = pool.counters[0]
    counters.num_free_blocks += place - counters.back_length
    counters.back_length = place


@compiled
def _compact(pool):
    """Move what is left to the beginning; at most half of the array is in use then."""
    counters, back, length = pool.counters[0], pool.back, 0
    for place in range(counters.back_head, counters.back_length):
        block_id = back[place]
        if block_id != _TOMBSTONE:
            back[length] = block_id
            pool.back_group[length] = pool.back_group[place]
            pool.back_prefix[length] = pool.back_prefix[place]
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
