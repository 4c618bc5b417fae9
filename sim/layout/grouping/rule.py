"""A grouping rule: a choice of the group size, with its source and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.layout.grouping.plan import Bucket, GroupingPlan
from sim.layout.parameters import Parametrised


@dataclass(frozen=True)
class GroupingRule(Parametrised):
    """A rule that is called with buckets and returns the groups.

    It replaces only the choice of the group size (and, for ``min_layers``, the split): pages are
    equal when it is asked, and models whose layers are all alike never ask.
    Source: spec/layout.md 6.5.
    """

    def __call__(self, buckets: Sequence[Bucket]) -> GroupingPlan:
        """Return the groups of the buckets, which are not empty."""
        return self.function(buckets, **self.values)
