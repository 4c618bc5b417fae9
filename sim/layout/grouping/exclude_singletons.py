"""The smallest bucket, without those of a single layer."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule


def smallest_of_several(buckets: Sequence[Bucket]) -> int:
    """Return the size of the smallest bucket that has two layers or more; 1 if none has."""
    return min((len(bucket) for bucket in buckets if len(bucket) > 1), default=1)


def exclude_singletons(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return groups of the smallest bucket's size, buckets of one layer left out of the minimum."""
    return strided(buckets, smallest_of_several(buckets))


EXCLUDE_SINGLETONS = GroupingRule(
    "the smallest bucket that has two layers or more", "spec/layout.md B", exclude_singletons
)
