"""Every group size tried: the least idle memory plus a price for each group."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.lengths import LengthDistribution
from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import candidates
from sim.layout.parameters import Parameter, num_bytes, number

PERCENT = Fraction(1)
"""What a group may cost a request, in percent of its content that may lie idle instead.

An assumption, and the one number in this rule that is not arithmetic: a group costs the host about
0.1 ms of each step (``sim/layout/grouping/cost.py``), which is 1 % of a step of 10 ms.
"""


def optimal(
    buckets: Sequence[Bucket],
    *,
    bytes_per_group: int | None,
    percent: Fraction,
    lengths: LengthDistribution | None,
) -> GroupingPlan:
    """Return the size from 1 to the largest bucket with the least cost for an average request.

    The cost is its weighted idle bytes, ``sum over groups of blocks x (longest - layers) x page``,
    plus a weight for each group: ``bytes_per_group``, or where that is not set ``percent`` % of
    the bytes that the request fills. Ties go to fewer idle bytes, then to fewer groups, then to
    the smaller size. ``lengths`` has been applied to the buckets' weights.
    """
    weight: int | Fraction
    if bytes_per_group is None:
        filled = sum(len(b) * b.blocks * b.spec.page_size_bytes for b in buckets)
        weight = filled * percent / 100
    else:
        weight = bytes_per_group
    best = min(
        candidates(buckets),
        key=lambda one: (
            one.idle_bytes + weight * one.num_groups,
            one.idle_bytes,
            one.num_groups,
            one.group_size,
        ),
    )
    return strided(buckets, best.group_size)


OPTIMAL = GroupingRule(
    "the least weighted idle bytes plus a price for each group, over every size",
    "spec/layout.md B and 15.10; the default price of a group is our assumption",
    optimal,
    {
        "bytes_per_group": Parameter(None, num_bytes, "price of a group, in bytes of a request"),
        "percent": Parameter(PERCENT, number, "price of a group, in % of what a request fills"),
        "lengths": Parameter(None, LengthDistribution.read, "lengths of requests, the maximum"),
    },
)
