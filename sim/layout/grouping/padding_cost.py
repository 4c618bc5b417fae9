"""Padding against groups: missing layers plus a price for each group."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import candidates
from sim.layout.parameters import Parameter, number


def padding_cost(buckets: Sequence[Bucket], *, c: Fraction) -> GroupingPlan:
    """Return the group size with the least ``idle slots + c x groups``.

    Slots are counted against the longest real group, and every slot counts alike, however many
    blocks it costs. Ties go to fewer idle slots, then to the smaller group size.
    """
    best = min(
        candidates(buckets),
        key=lambda one: (one.idle_slots + c * one.num_groups, one.idle_slots, one.group_size),
    )
    return strided(buckets, best.group_size)


PADDING_COST = GroupingRule(
    "the least `idle slots + c x groups`; ties to fewer idle slots",
    "spec/layout.md B, 15.10",
    padding_cost,
    {"c": Parameter(Fraction(1), number, "idle slots that one group may save")},
)
