"""vllm-project/vllm PR 31275: least padding, larger groups preferred, small ones in need only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import Candidate, candidates
from sim.layout.parameters import Parameter, count, number


def pr_31275(buckets: Sequence[Bucket], *, percent: Fraction, least: int) -> GroupingPlan:
    """Return the size with the least padding among those of at least ``least`` layers.

    Ties go to the larger size. If even that leaves more than ``percent`` % of the slots idle, sizes
    below ``least`` are tried as well.

    Deviation: unknown. The description says that padding is minimised and weighted by a layer's
    memory, that sizes from three on are preferred, and that smaller ones are a fallback when the
    overhead exceeds 10 %; it does not say against what overhead is measured (here: padding over
    all slots; pages are equal, so memory weighs nothing), nor how ties end.
    """
    sizes = candidates(buckets)
    preferred = [one for one in sizes if one.group_size >= least]
    if preferred and _best(preferred).idle_slot_share * 100 <= percent:
        sizes = preferred
    return strided(buckets, _best(sizes).group_size)


def _best(sizes: Sequence[Candidate]) -> Candidate:
    return min(sizes, key=lambda one: (one.idle_slot_share, -one.group_size))


PR_31275 = GroupingRule(
    "the least padding with groups of three or more; smaller ones where that idles over 10 %",
    "vllm-project/vllm PR 31275 (closed), its description; the measure of overhead is our reading",
    pr_31275,
    {
        "percent": Parameter(Fraction(10), number, "idle share of the slots that is accepted"),
        "least": Parameter(3, count, "smallest preferred group"),
    },
)
