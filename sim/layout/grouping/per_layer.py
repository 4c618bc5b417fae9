"""A block table for each layer."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule


def per_layer(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return groups of one layer: no padding, most groups."""
    return strided(buckets, 1)


PER_LAYER = GroupingRule(
    "one layer in each group: no padding, most groups", "spec/layout.md B", per_layer
)
