"""Token ids for content that is only named: a fixed mix of source and position."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from sim.request import Span

TOKEN_BITS = 31
_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, odd
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def token_ids(spans: Iterable[Span], first: int = 0, last: int | None = None) -> list[int]:
    """Return the ids of tokens [first, last) of a sequence of spans, each in [0, 2**31).

    Equal (source, position) give equal ids, in any process and on any machine. Two different ones
    share an id with a chance of 2**-31: two blocks of n different tokens agree with 2**(-31 n),
    and among k tokens that must differ from one given token each, about k * 2**-31 do not.
    So prefixes that PrefixIds tells apart have equal tokens only if they differ in few tokens, and
    then with these odds. The cost is per token asked for, in numpy.

    Raises ValueError if the range is not one of tokens that the spans have.
    Source: ours; the finaliser is SplitMix64's, the source enters as 64 bits of BLAKE2b.
    """
    parts: list[int] = []
    position = 0
    for span in spans:
        begin = max(first - position, 0)
        end = span.length if last is None else min(last - position, span.length)
        if begin < end:
            parts += _of_span(span.source, span.start + begin, span.start + end)
        position += span.length
    if not 0 <= first <= (position if last is None else last) <= position:
        raise ValueError(f"tokens [{first}, {last}) of {position}")
    return parts


def _of_span(source: str, start: int, stop: int) -> list[int]:
    mixed = np.arange(start, stop, dtype=np.uint64) * _STEP + _seed(source)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    ids: list[int] = (mixed >> np.uint64(64 - TOKEN_BITS)).tolist()
    return ids


@lru_cache(maxsize=4096)
def _seed(source: str) -> np.uint64:
    digest = hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "big"))
