"""Grouping as in the design text that the hybrid manager started from."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, split_consecutive
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import smallest
from sim.layout.kv_cache_spec import FullFamilySpec


def min_layers(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return groups of the smallest bucket's size, full attention first, in consecutive runs.

    The last group of a bucket is short and is filled up with padding layers: Gemma-3-27b gets 10
    full; five times 10 sliding; 2 sliding and 8 padding.
    Source: seeds/hybrid_kv_cache_manager.txt, cases 2 to 4. Deviation: the text knows two types
    only; more of them keep their first-seen order behind full attention.
    """
    group_size = smallest(buckets)
    ordered = sorted(buckets, key=lambda bucket: not isinstance(bucket.spec, FullFamilySpec))
    groups = [group for b in ordered for group in split_consecutive(b.layer_names, group_size)]
    return GroupingPlan(group_size, tuple(groups))


MIN_LAYERS = GroupingRule(
    "the smallest bucket, full attention first, in consecutive runs",
    "the design text that the hybrid manager started from, cases 2 to 4",
    min_layers,
)
