"""A group size that the user names."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.parameters import Parameter, count


def fixed(buckets: Sequence[Bucket], *, size: int) -> GroupingPlan:
    """Return groups of at most ``size`` layers, balanced within each bucket."""
    return strided(buckets, size)


FIXED = GroupingRule(
    "groups of at most `size` layers",
    "spec/layout.md B; the default of 8 is ours and means nothing",
    fixed,
    {"size": Parameter(8, count, "layers of a group")},
)
