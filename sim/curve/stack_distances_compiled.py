"""The compiled half of ``stack_distances.py``: how deep in the LRU stack a block is.

The stack is a row of positions; a block that is touched moves to the next position at its end, and
leaves a hole behind. A block at position p has (positions behind p) - (holes behind p) blocks above
it, so only holes are counted, in a Fenwick tree, and a block that comes for the first time costs
nothing. Source: Mattson et al., IBM Systems Journal 9(2), 1970; Bennett and Kruskal, IBM Journal of
Research and Development 19(4), 1975, for the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.jit import compiled

END, NUM_HOLES = 0, 1


class Stack(NamedTuple):
    """The LRU stack.

    last : int64 (ids,), the position of a block, from 1; 0: it was never touched
    holes : int32 (positions + 1,), a Fenwick tree: element i counts the holes in (i - (i & -i), i]
    counters : int64 (2,), the last position in use, and the number of holes
    """

    last: np.ndarray
    holes: np.ndarray
    counters: np.ndarray


@compiled
def depth_at(stack, position):
    """Return the depth of the block at a position: 1 is the most recent one."""
    before = 0
    i = position
    while i > 0:
        before += stack.holes[i]
        i -= i & -i
    counters = stack.counters
    return counters[END] - position + 1 - (counters[NUM_HOLES] - before)


@compiled
def touch(stack, block):
    """Make a block the most recent one."""
    position = stack.last[block]
    if position > 0:
        holes = stack.holes
        size = holes.shape[0]
        i = position
        while i < size:
            holes[i] += 1
            i += i & -i
        stack.counters[NUM_HOLES] += 1
    stack.counters[END] += 1
    stack.last[block] = stack.counters[END]


@compiled
def touch_request(stack, ids, first, last, leaf_first):
    """Touch ids[first:last] in order, or from the end: then the first is the most recent."""
    for k in range(first, last):
        touch(stack, ids[last - 1 - (k - first)] if leaf_first else ids[k])


@compiled
def leading_depths(stack, ids, starts, num_lookups, leaf_first, depths):
    """Serve requests one by one; write the depth down to which each block and all before it lie.

    Request r has the blocks ids[starts[r] : starts[r + 1]] and looks its first num_lookups[r] up,
    before it touches any. depths stays 0 where a block, or one before it, was never touched.
    """
    for r in range(num_lookups.shape[0]):
        first, last = starts[r], starts[r + 1]
        deepest = 0
        for k in range(first, first + num_lookups[r]):
            position = stack.last[ids[k]]
            if position == 0:
                break
            deepest = max(deepest, depth_at(stack, position))
            depths[k] = deepest
        touch_request(stack, ids, first, last, leaf_first)


@compiled
def access_depths(stack, ids, starts, num_lookups, depths):
    """Serve requests one by one; write the depth of each block at the instant of its own touch."""
    for r in range(num_lookups.shape[0]):
        first, last = starts[r], starts[r + 1]
        for k in range(first, last):
            position = stack.last[ids[k]]
            if position > 0 and k < first + num_lookups[r]:
                depths[k] = depth_at(stack, position)
            touch(stack, ids[k])


@compiled
def tally(depths, tokens, hits, hit_tokens):
    """Count blocks and their tokens by depth; what has no depth is left out."""
    for k in range(depths.shape[0]):
        depth = depths[k]
        if depth > 0:
            hits[depth] += 1
            hit_tokens[depth] += tokens[k]
