"""No padding with the fewest groups: the greatest common divisor of the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd as common_divisor

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule


def gcd(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return groups of the buckets' greatest common divisor: no layer is missing anywhere."""
    return strided(buckets, common_divisor(*(len(bucket) for bucket in buckets)))


GCD = GroupingRule(
    "the greatest common divisor of the buckets: no padding, many groups", "spec/layout.md B", gcd
)
