"""Grouping as in vLLM 0.25.1."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import largest_if_near, smallest

RATIO = Fraction(3, 2)


def vllm(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return groups of the largest bucket if it is below 1.5 times the smallest, else of that.

    Buckets between the two do not matter.
    """
    return strided(buckets, largest_if_near(buckets, smallest(buckets), RATIO))


VLLM = GroupingRule(
    "the largest bucket if it is less than 1.5 times the smallest, else the smallest",
    "vLLM 0.25.1; spec/layout.md 6.5",
    vllm,
)
