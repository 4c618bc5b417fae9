"""A pool for each type of layer, sized once."""

from __future__ import annotations

from sim.errors import ConfigError
from sim.layout.plans.planned import (
    MemoryPlan,
    PlanInput,
    Planned,
    PlannedGroup,
    PlannedPool,
    planned,
)
from sim.layout.plans.types import content_bytes, natural_types, page_bytes


def type_pools(given: PlanInput) -> Planned:
    """Return one pool for each type, in proportion to the bytes that a request needs of it.

    A block of a pool holds all layers of its type, with natural pages. The need is that of a
    request of average length; the pool that runs out first decides how many requests fit.
    """
    types = natural_types(given)
    blocks = [given.lengths.mean_blocks(bucket.spec, given.limits) for bucket in types]
    needs = [n * page_bytes(bucket) for n, bucket in zip(blocks, types, strict=True)]
    total = sum(needs)
    if not total:
        raise ConfigError.one("model", "no layer that needs memory", "at least one")
    pools = []
    for bucket, need in zip(types, needs, strict=True):
        size = page_bytes(bucket)
        content = content_bytes(bucket)
        group = PlannedGroup(bucket.layer_names, bucket.spec, size, content, size - content)
        num_pages = int(given.memory_bytes * need / total) // size
        pools.append(PlannedPool(num_pages, size, (group,), given.profile.reserved_blocks))
    return planned(given, pools, max(len(bucket) for bucket in types))


TYPE_POOLS = MemoryPlan(
    "a pool for each type of layer, in proportion to its need; natural pages",
    "spec/layout.md B (per-type pools)",
    type_pools,
)
