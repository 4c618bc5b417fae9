"""The size that the buckets divide best into, from the smallest bucket up."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import smallest


def approximate_divisor(sizes: Sequence[int], least: int) -> int:
    """Return the size from ``least`` to the largest with the least round-up of all sizes.

    Ties go to the larger one; ``least`` beyond the largest is the answer itself.
    Source: spec/layout.md 6.3 step 3.

    >>> approximate_divisor([21, 43, 21, 20], 21), approximate_divisor([7, 5], 7)
    (22, 7)
    """
    candidates = range(least, max(least, *sizes) + 1)
    return min(candidates, key=lambda d: (sum(-size % d for size in sizes), -d))


def approximate_gcd(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return the size that needs the least rounding up, from the smallest bucket on.

    Rounding is counted as DeepSeek-V4's rule counts it, against the size aimed at.
    """
    sizes = [len(bucket) for bucket in buckets]
    return strided(buckets, approximate_divisor(sizes, smallest(buckets)))


APPROXIMATE_GCD = GroupingRule(
    "the least rounding up of all buckets, from the smallest bucket on; ties to larger groups",
    "spec/layout.md 6.3 step 3 (DeepSeek-V4), applied to every model",
    approximate_gcd,
)
