"""Fewest groups: every bucket is one group."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import largest


def max_layers(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return groups of the largest bucket's size: one group for each bucket."""
    return strided(buckets, largest(buckets))


MAX_LAYERS = GroupingRule(
    "the largest bucket: one group for each bucket, most padding", "spec/layout.md B", max_layers
)
