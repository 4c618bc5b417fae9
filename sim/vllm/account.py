"""The account of a difference: where, what, and what both sides look like around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sim.units import NS_PER_S
from sim.vllm.difference import Difference

_HEAD = 12
_MOST_TEXT = 200


def account(
    difference: Difference,
    call: str,
    step: int,
    now_ns: int,
    kinds: Sequence[str],
    ours: Any,
    theirs: Any,
) -> str:
    """Return the lines that tell of a difference.

    call : after which it was seen; kinds : those of the groups; ours, theirs : pools, or views
    """
    where = f"the first difference, after {call} of step {step:,} at {now_ns / NS_PER_S:.6f} s"
    return "\n".join([where, *_what(difference, kinds), *_pools(difference, ours, theirs)])


def _what(difference: Difference, kinds: Sequence[str]) -> Iterator[str]:
    yield f"  what     {difference.what}"
    if difference.request_id is not None:
        yield f"  request  {difference.request_id}"
    if difference.group_id is not None:
        yield f"  group    {difference.group_id} ({kinds[difference.group_id]})"
    yield f"  ours     {_shortened(difference.ours)}"
    yield f"  vllm     {_shortened(difference.theirs)}"


def _shortened(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."


def _pools(difference: Difference, ours: Any, theirs: Any) -> Iterator[str]:
    both = {"ours": ours, "vllm": theirs}
    free = {name: pool.free_block_queue.get_all_free_blocks() for name, pool in both.items()}
    yield "  free queue, head first"
    yield from (f"    {name}   {_cut(queue, 0)}" for name, queue in free.items())
    place = _first_difference(*free.values())
    if place >= _HEAD:
        yield f"  free queue from place {place}, where it differs"
        yield from (f"    {name}   {_cut(queue, place)}" for name, queue in free.items())
    for block_id in dict.fromkeys(filter(None, difference.blocks)):
        yield f"  block {block_id}"
        yield from (f"    {name}   {_block(pool, block_id)}" for name, pool in both.items())


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the first place at which two queues differ, -1 if they do not."""
    if ours == theirs:
        return -1
    pairs = enumerate(zip(ours, theirs, strict=False))
    shorter = min(len(ours), len(theirs))
    return next((place for place, (one, other) in pairs if one != other), shorter)


def _cut(free: Sequence[int], first: int) -> str:
    shown = " ".join(map(str, free[first : first + _HEAD]))
    return f"{shown}{' ...' if len(free) > first + _HEAD else ''}   ({len(free):,} blocks)"


def _block(pool: Any, block_id: int) -> str:
    holders, prefix_id = pool.ref_cnt[block_id], pool.prefix_id[block_id]
    cached = "not cached"
    if prefix_id >= 0:
        cached = f"cached as identity {prefix_id} of group {pool.group_id[block_id]}"
    return f"{holders} holders, {cached}"
