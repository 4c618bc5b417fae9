"""Grouping as in vLLM before 0.25: the smallest bucket, and the 1.25 rule that followed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import largest_if_near, smallest
from sim.layout.parameters import Parameter, number


def vllm_0_11(buckets: Sequence[Bucket], *, ratio: Fraction) -> GroupingPlan:
    """Return groups of the largest bucket if below ``ratio`` times the smallest, else of that."""
    return strided(buckets, largest_if_near(buckets, smallest(buckets), ratio))


_RATIO = Parameter(Fraction(5, 4), number, "ratio=1 is the plain minimum of the first releases")

VLLM_0_11 = GroupingRule(
    "the largest bucket if it is less than 1.25 times the smallest, else the smallest",
    "spec/layout.md 15.4: the minimum until PR 29303, then 1.25, 1.5 since PR 36684",
    vllm_0_11,
    {"ratio": _RATIO},
)

PR_29303 = GroupingRule(
    "as vllm_0_11: the near-equal rule at the 1.25 of its first version",
    "vllm-project/vllm PR 29303 (merged); the thread shows 19/18 layers only, 1.25 is from 36684",
    vllm_0_11,
    {"ratio": _RATIO},
)
