"""vllm-project/vllm PR 36143: an option that overrides the group size."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.vllm import vllm
from sim.layout.parameters import Parameter, count


def pr_36143(buckets: Sequence[Bucket], *, size: int | None) -> GroupingPlan:
    """Return groups of ``size`` layers where it is set, else what the engine's own rule returns."""
    return vllm(buckets) if size is None else strided(buckets, size)


PR_36143 = GroupingRule(
    "the engine's rule, or groups of `size` layers where it is set",
    "vllm-project/vllm PR 36143 (closed): --hybrid-kv-cache-group-size, unset by default",
    pr_36143,
    {"size": Parameter(None, count, "layers of a group; not set: the engine's rule")},
)
