"""Grouping rules: which layers of equal spec share a block table. One file each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sim.errors import ConfigError
from sim.layout.grouping.approximate_gcd import APPROXIMATE_GCD
from sim.layout.grouping.exclude_singletons import EXCLUDE_SINGLETONS
from sim.layout.grouping.fixed import FIXED
from sim.layout.grouping.gcd import GCD
from sim.layout.grouping.lengths import LengthDistribution
from sim.layout.grouping.max_layers import MAX_LAYERS
from sim.layout.grouping.min_layers import MIN_LAYERS
from sim.layout.grouping.optimal import OPTIMAL
from sim.layout.grouping.overhead_bound import OVERHEAD_BOUND
from sim.layout.grouping.padding_cost import PADDING_COST
from sim.layout.grouping.per_layer import PER_LAYER
from sim.layout.grouping.plan import (
    Bucket,
    GroupingHeuristic,
    GroupingPlan,
    split_consecutive,
    split_strided,
    strided,
)
from sim.layout.grouping.pr_31275 import PR_31275
from sim.layout.grouping.pr_36143 import PR_36143
from sim.layout.grouping.pr_49472 import PR_49472
from sim.layout.grouping.pr_51742 import PR_51742
from sim.layout.grouping.pr_58175 import PR_58175
from sim.layout.grouping.rule import GroupingRule
from sim.layout.grouping.vllm import VLLM
from sim.layout.grouping.vllm_0_11 import PR_29303, VLLM_0_11
from sim.layout.kv_cache_spec import MemoryLimits
from sim.layout.parameters import ParametrisedRegistry

__all__ = [
    "GROUPING_HEURISTICS",
    "Bucket",
    "GroupingHeuristic",
    "GroupingPlan",
    "GroupingRule",
    "LengthDistribution",
    "heuristic_for",
    "split_consecutive",
    "split_strided",
    "strided",
]

KEY = "cache.grouping"


GROUPING_HEURISTICS: ParametrisedRegistry[GroupingHeuristic] = ParametrisedRegistry(
    KEY,
    {
        "vllm": VLLM,
        "vllm_0_11": VLLM_0_11,
        "min_layers": MIN_LAYERS,
        "max_layers": MAX_LAYERS,
        "gcd": GCD,
        "per_layer": PER_LAYER,
        "fixed": FIXED,
        "padding_cost": PADDING_COST,
        "overhead_bound": OVERHEAD_BOUND,
        "exclude_singletons": EXCLUDE_SINGLETONS,
        "approximate_gcd": APPROXIMATE_GCD,
        "optimal": OPTIMAL,
        "pr_29303": PR_29303,
        "pr_31275": PR_31275,
        "pr_36143": PR_36143,
        "pr_49472": PR_49472,
        "pr_51742": PR_51742,
        "pr_58175": PR_58175,
    },
)


def heuristic_for(grouping: str, limits: MemoryLimits) -> GroupingHeuristic:
    """Return the rule that ``grouping`` names, its buckets weighted with the blocks they hold.

    The weight of a bucket is the per-request maximum of its spec in blocks, averaged over the
    rule's ``lengths`` where it has any, else at the maximum model length.

    Raises
    ------
    ConfigError
        An unknown rule or parameter, a value out of range, a length beyond the maximum.
    """
    name = grouping.partition(":")[0]
    if name not in GROUPING_HEURISTICS:
        _check_not_a_plan(name)
    rule = GROUPING_HEURISTICS[grouping]
    given = rule.values.get("lengths") if isinstance(rule, GroupingRule) else None
    lengths = given or LengthDistribution.of([(limits.max_model_len, 1)])
    lengths.check(limits.max_model_len, f"{KEY}.lengths")

    def weighted(buckets: Sequence[Bucket]) -> GroupingPlan:
        blocks = (lengths.mean_blocks(bucket.spec, limits) for bucket in buckets)
        return rule([replace(b, blocks=n) for b, n in zip(buckets, blocks, strict=True)])

    return weighted


def _check_not_a_plan(name: str) -> None:
    from sim.layout.plans import MEMORY_PLANS  # they are built on the rules

    if name in MEMORY_PLANS:
        allowed = "a memory plan: planned and compared (kvsim groupings); no allocator runs it yet"
        raise ConfigError.one(KEY, name, allowed)
