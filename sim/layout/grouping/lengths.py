"""How long requests are: lengths in tokens and how often each occurs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import gcd

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import KVCacheSpec, MemoryLimits
from sim.layout.parameters import count

_ALLOWED = "LENGTH or LENGTH*TIMES, joined with +, such as 4096*3+131072"


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """Pairs (length in tokens, how often), shortest first; the counts have no common divisor."""

    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> LengthDistribution:
        """Return the distribution of the pairs; equal lengths are added up."""
        times: dict[int, int] = {}
        for length, often in pairs:
            times[length] = times.get(length, 0) + often
        common = reduce(gcd, times.values())
        return cls(tuple((length, times[length] // common) for length in sorted(times)))

    @classmethod
    def read(cls, text: str) -> LengthDistribution:
        """Return the distribution that ``4096*3+131072`` means. Raises ValueError."""
        try:
            return cls.of(_pair(part) for part in text.split("+"))
        except ValueError:
            raise ValueError(_ALLOWED) from None

    def __str__(self) -> str:
        parts = (f"{n}*{often}" if often > 1 else f"{n}" for n, often in self.pairs)
        return "+".join(parts)

    @property
    def longest(self) -> int:
        """The longest length."""
        return self.pairs[-1][0]

    @property
    def num_requests(self) -> int:
        """Requests of one round: the sum of the counts."""
        return sum(often for _, often in self.pairs)

    def check(self, max_model_len: int, key: str) -> None:
        """Raise a ConfigError if a length is beyond what a request may have."""
        if self.longest > max_model_len:
            allowed = f"lengths of at most the maximum model length of {max_model_len}"
            raise ConfigError.one(key, self.longest, allowed)

    def mean_blocks(self, spec: KVCacheSpec, limits: MemoryLimits) -> Fraction:
        """Return the blocks that a layer may hold for a request, averaged over the lengths."""
        total = sum(
            often * spec.max_blocks(replace(limits, max_model_len=length))
            for length, often in self.pairs
        )
        return Fraction(total, self.num_requests)


def _pair(text: str) -> tuple[int, int]:
    length, star, often = text.partition("*")
    return count(length.strip()), count(often.strip()) if star else 1
