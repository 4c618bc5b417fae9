"""Grouping heuristics: which layers of equal spec share a block table. One file each."""

from __future__ import annotations

from sim.layout.grouping.min_layers import min_layers
from sim.layout.grouping.plan import (
    Bucket,
    GroupingHeuristic,
    GroupingPlan,
    split_consecutive,
    split_strided,
    strided_by,
)
from sim.layout.grouping.vllm import vllm_group_size
from sim.registry import Registry

__all__ = [
    "GROUPING_HEURISTICS",
    "Bucket",
    "GroupingHeuristic",
    "GroupingPlan",
    "split_consecutive",
    "split_strided",
    "strided_by",
]

GROUPING_HEURISTICS: Registry[GroupingHeuristic] = Registry(
    "cache.grouping",
    {
        "vllm": strided_by(vllm_group_size),
        "min_layers": min_layers,
    },
)
