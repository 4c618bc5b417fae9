"""vllm-project/vllm PR 49472: padding against the number of groups."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import largest
from sim.layout.parameters import Parameter, number
from sim.units import cdiv


def pr_49472(buckets: Sequence[Bucket], *, padding_per_group: Fraction) -> GroupingPlan:
    """Return the size with the least ``padding + padding_per_group x groups``; ties: fewer groups.

    It differs from ``padding_cost`` in its ties, and in that padding is counted against the size
    aimed at, as the engine's warning counts it. MiMo with a draft, 9/39/5: 5 and 10 both cost 13,
    and 10 is what PR 58175 says that this rule takes.

    Deviation: unknown. The description does not say which sizes are tried (here: 1 to the largest
    bucket) nor what happens beyond a tie in groups (here: the smaller size).
    """

    def cost(size: int) -> tuple[Fraction, int]:
        groups = sum(cdiv(len(bucket), size) for bucket in buckets)
        padding = sum(-len(bucket) % size for bucket in buckets)
        return padding + padding_per_group * groups, groups

    return strided(buckets, min(range(1, largest(buckets) + 1), key=cost))


PR_49472 = GroupingRule(
    "the least `padding + padding_per_group x groups`; ties to fewer groups",
    "vllm-project/vllm PR 49472 (open), its description; which sizes are tried is our reading",
    pr_49472,
    {"padding_per_group": Parameter(Fraction(1), number, "padding that one group may save")},
)
