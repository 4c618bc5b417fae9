"""An LRU cache of blocks, and the definitions of a hit, as plainly as they are said.

One run for each capacity; knows nothing of stacks, depths or arrays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

Request = Sequence[Hashable]


class Cache:
    """``capacity`` blocks; the least recent one is evicted when one more comes in."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.blocks: OrderedDict[Hashable, None] = OrderedDict()

    def touch(self, block: Hashable) -> None:
        self.blocks[block] = None
        self.blocks.move_to_end(block)
        if len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)

    def leading(self, request: Request) -> int:
        for count, block in enumerate(request):
            if block not in self.blocks:
                return count
        return len(request)


def root_first(cache: Cache, request: Request, num_lookups: int) -> int:
    hits = cache.leading(request[:num_lookups])
    for block in request:
        cache.touch(block)
    return hits


def leaf_first(cache: Cache, request: Request, num_lookups: int) -> int:
    hits = cache.leading(request[:num_lookups])
    for block in reversed(request):
        cache.touch(block)
    return hits


def per_access(cache: Cache, request: Request, num_lookups: int) -> int:
    hits = 0
    for place, block in enumerate(request):
        hits += block in cache.blocks and place < num_lookups
        cache.touch(block)
    return hits


SLOW = {"root_first": root_first, "leaf_first": leaf_first, "per_access": per_access}


def slow_hits(
    definition: str, requests: Sequence[Request], num_lookups: Sequence[int], capacity: int
) -> list[int]:
    """Return the hits of each request."""
    cache = Cache(capacity)
    serve = SLOW[definition]
    return [serve(cache, r, n) for r, n in zip(requests, num_lookups, strict=True)]
