"""The engine's own layouts, seen as planned memory."""

from __future__ import annotations

from sim.errors import ConfigError
from sim.layout.kv_cache_config import layer_specs
from sim.layout.plan import Pool, plan_pool
from sim.layout.plans.planned import PlanInput, Planned, PlannedGroup, PlannedPool
from sim.layout.settings import LayoutSettings
from sim.layout.waste import static_waste


def planned_by_engine(given: PlanInput, settings: LayoutSettings) -> Planned:
    """Return what the engine plans with these settings; its refusal where it refuses.

    One page of the pool is a block on all workers together.
    """
    pool = plan_pool(given.specs_by_worker, settings, given.limits, given.longest, given.profile)
    if not pool.groups:
        raise ConfigError.one("model", "no layer with a cache", "at least one")
    waste = static_waste(pool, given.profile.reserved_blocks)
    block = sum(worker.bytes_per_block for worker in pool.workers)
    num_blocks = pool.kv_cache_config.num_blocks
    reserved = min(given.profile.reserved_blocks, num_blocks)
    return Planned(
        (PlannedPool(num_blocks, block, _groups(pool, block), reserved),),
        waste["kv_memory_bytes"],
        max(len(group.layer_names) for group in pool.groups),
        waste["padding_layers"],
        pool.capacity.tokens,
        pool.capacity.concurrency,
        pool.log_lines,
    )


def _groups(pool: Pool, block: int) -> tuple[PlannedGroup, ...]:
    """Each group with its layers on all workers."""
    configs = [worker.kv_cache_config.kv_cache_groups for worker in pool.workers]
    made = []
    for group, by_worker in zip(pool.groups, zip(*configs, strict=True), strict=True):
        specs = [spec for own in by_worker for _, spec in layer_specs(own)]
        content = sum(spec.real_page_size_bytes for spec in specs)
        padding = sum(spec.page_size_bytes for spec in specs) - content
        made.append(PlannedGroup(group.layer_names, group.kv_cache_spec, block, content, padding))
    return tuple(made)
