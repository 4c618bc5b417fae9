"""As few groups as an allowance of idle memory permits."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.lengths import LengthDistribution
from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import candidates
from sim.layout.parameters import Parameter, number, switch


def overhead_bound(
    buckets: Sequence[Bucket],
    *,
    percent: Fraction,
    weighted: bool,
    lengths: LengthDistribution | None,
) -> GroupingPlan:
    """Return the largest group size with at most ``percent`` % idle; 1 always qualifies.

    weighted: each group counts by the blocks that it holds for a request of average length; else
    every slot counts alike. ``lengths`` has been applied to the buckets' weights.
    """
    fit = [
        one.group_size
        for one in candidates(buckets)
        if (one.idle_share if weighted else one.idle_slot_share) * 100 <= percent
    ]
    return strided(buckets, max(fit))


OVERHEAD_BOUND = GroupingRule(
    "the largest group size with at most `percent` % of a request's pages idle",
    "spec/layout.md B and 15.10; 10 % as in vllm-project/vllm PR 31275",
    overhead_bound,
    {
        "percent": Parameter(Fraction(10), number, "idle share that is allowed"),
        "weighted": Parameter(True, switch, "weigh slots with the blocks that their group holds"),
        "lengths": Parameter(None, LengthDistribution.read, "lengths of requests, the maximum"),
    },
)
