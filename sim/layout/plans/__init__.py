"""Memory plans: ways to divide the KV memory that are planned and compared, not yet simulated."""

from __future__ import annotations

from sim.layout.parameters import ParametrisedRegistry
from sim.layout.plans.lcm_page import LCM_PAGE
from sim.layout.plans.multi_layer_page import MULTI_LAYER_PAGE
from sim.layout.plans.planned import MemoryPlan, PlanInput, Planned
from sim.layout.plans.single_full import SINGLE_FULL
from sim.layout.plans.type_pools import TYPE_POOLS

__all__ = ["MEMORY_PLANS", "MemoryPlan", "PlanInput", "Planned"]

MEMORY_PLANS: ParametrisedRegistry[MemoryPlan] = ParametrisedRegistry(
    "memory plan",
    {
        "single_full": SINGLE_FULL,
        "type_pools": TYPE_POOLS,
        "lcm_page": LCM_PAGE,
        "multi_layer_page": MULTI_LAYER_PAGE,
    },
)
