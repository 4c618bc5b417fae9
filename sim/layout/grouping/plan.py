"""What a grouping rule sees and answers, and the two ways to split a bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sim.layout.kv_cache_spec import KVCacheSpec
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class Bucket:
    """All layers of one exact spec, in order of registration. Buckets come in first-seen order.

    blocks: the blocks that one group of this bucket holds for a request, as an average over the
    requests' lengths; 1 where nothing is known about them.
    """

    spec: KVCacheSpec
    layer_names: tuple[str, ...]
    blocks: Fraction = Fraction(1)

    def __len__(self) -> int:
        return len(self.layer_names)


@dataclass(frozen=True, slots=True)
class GroupingPlan:
    """The groups in their final order; the layers of one group come from one bucket.

    group_size is what the rule aimed at. Groups may all be shorter: the pool goes by the longest
    one, and missing layers are padding (spec/layout.md 15.10).
    """

    group_size: int
    groups: tuple[tuple[str, ...], ...]

    def padding_of(self, bucket: Bucket) -> int:
        """Layers that the bucket's groups lack to the longest group of all."""
        longest = max(len(group) for group in self.groups)
        members = set(bucket.layer_names)
        count = sum(1 for group in self.groups if group[0] in members)
        return count * longest - len(bucket)


GroupingHeuristic = Callable[[Sequence[Bucket]], GroupingPlan]


def strided(buckets: Sequence[Bucket], group_size: int) -> GroupingPlan:
    """Return each bucket split into balanced groups of at most ``group_size`` layers."""
    groups = [group for b in buckets for group in split_strided(b.layer_names, group_size)]
    return GroupingPlan(group_size, tuple(groups))


def split_strided(layer_names: Sequence[str], group_size: int) -> list[tuple[str, ...]]:
    """Return ceil(n / group_size) groups; group i takes layers i, i + count, i + 2 count, ...

    So sizes differ by at most one, and with pipeline stages each stage holds about the same share
    of every group. Source: spec/layout.md 6.5.

    >>> split_strided("abcde", 2)
    [('a', 'd'), ('b', 'e'), ('c',)]
    """
    count = cdiv(len(layer_names), group_size)
    return [tuple(layer_names[first::count]) for first in range(count)]


def split_consecutive(layer_names: Sequence[str], group_size: int) -> list[tuple[str, ...]]:
    """Return runs of ``group_size`` layers; only the last one may be shorter.

    >>> split_consecutive("abcde", 2)
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    starts = range(0, len(layer_names), group_size)
    return [tuple(layer_names[start : start + group_size]) for start in starts]
