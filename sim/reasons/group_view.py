"""What one group could use of one request, edge by edge."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sim.reasons.needs import FirstNeeded

USABLE = -1
EXTRA_MISSING = -2


def blocking_blocks(
    edges: range,
    prefix_ids: Sequence[int],
    cached: Collection[int],
    block_size: int,
    first_needed: FirstNeeded,
    needs_extra: bool,
    max_length: int,
) -> list[int]:
    """Return for each right edge the block that forbids a hit there.

    The answer is the last missing block among those that the hit needs, ``USABLE`` if none is,
    ``EXTRA_MISSING`` if only the block behind the edge is missing that EAGLE drops.

    edges : token counts, multiples of the block size, ascending
    prefix_ids : identities at the group's block size
    cached : identities that the group's index holds
    """
    if not edges:
        return []
    start = first_needed(edges[0])
    end = edges[-1] // block_size + needs_extra
    end = min(end, max_length // block_size)
    is_cached = [prefix_id in cached for prefix_id in prefix_ids[start:end]]
    blocking, place, missing = [], start, -1
    for edge in edges:
        last = edge // block_size
        for idx in range(place, last):
            if not is_cached[idx - start]:
                missing = idx
        place = last
        if missing >= first_needed(edge):
            blocking.append(missing)
        elif needs_extra and not (last < end and is_cached[last - start]):
            blocking.append(EXTRA_MISSING)
        else:
            blocking.append(USABLE)
    return blocking
