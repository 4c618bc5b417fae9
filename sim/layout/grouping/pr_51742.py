"""vllm-project/vllm PR 51742: a single odd layer no longer decides."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.exclude_singletons import smallest_of_several
from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import largest_if_near
from sim.layout.grouping.vllm import RATIO


def pr_51742(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return what the engine's rule returns if buckets of one layer are left out of the minimum.

    Deviation: unknown. The description changes the minimum only, so the near-equal rule follows it
    here: 12/13/1 gives 13, where ``exclude_singletons`` gives 12.
    """
    return strided(buckets, largest_if_near(buckets, smallest_of_several(buckets), RATIO))


PR_51742 = GroupingRule(
    "the engine's rule with buckets of one layer left out of the minimum",
    "vllm-project/vllm PR 51742 (open), its description",
    pr_51742,
)
