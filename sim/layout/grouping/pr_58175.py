"""vllm-project/vllm PR 58175: full attention is never padded."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from sim.layout.grouping.plan import Bucket, GroupingPlan, strided
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.scan import largest_if_near, smallest
from sim.layout.grouping.vllm import RATIO
from sim.layout.kv_cache_spec import FullFamilySpec


def pr_58175(buckets: Sequence[Bucket]) -> GroupingPlan:
    """Return the largest size up to the engine's that divides every full-attention bucket.

    Where the engine's rule takes the largest bucket (near-equal buckets), that stays. MiMo with a
    draft, 9 full, 39 and 5 sliding: 3 instead of 5, 18 groups instead of 11.

    Deviation: unknown. What counts as full attention is our reading: every kind that keeps all
    tokens. Without such layers nothing changes.
    """
    least = smallest(buckets)
    size = largest_if_near(buckets, least, RATIO)
    full = gcd(*(len(b) for b in buckets if isinstance(b.spec, FullFamilySpec)))
    if size == least and full:
        size = max(d for d in range(1, least + 1) if full % d == 0)
    return strided(buckets, size)


PR_58175 = GroupingRule(
    "the engine's rule, lowered to a size that divides every full-attention bucket",
    "vllm-project/vllm PR 58175 (open), its description",
    pr_58175,
)
