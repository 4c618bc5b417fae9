"""The hybrid manager switched off: every layer keeps everything, behind one block table."""

from __future__ import annotations

from dataclasses import replace

from sim.layout.plans.grouped import planned_by_engine
from sim.layout.plans.planned import MemoryPlan, PlanInput, Planned


def single_full(given: PlanInput) -> Planned:
    """Return what the engine plans with its hybrid manager off; its refusal where it refuses."""
    settings = replace(given.settings, disable_hybrid_kv_cache_manager=True)
    return planned_by_engine(given, settings)


SINGLE_FULL = MemoryPlan(
    "the hybrid manager off: windows and chunks are kept whole, one block table",
    "vLLM 0.25.1, --disable-hybrid-kv-cache-manager; spec/layout.md 5",
    single_full,
)
