"""Jenga: one pool of large pages that each type cuts into pages of its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from sim.errors import ConfigError
from sim.layout.grouping.plan import Bucket
from sim.layout.kv_cache_spec import MambaSpec
from sim.layout.parameters import Parameter, count
from sim.layout.plans.planned import (
    MemoryPlan,
    PlanInput,
    Planned,
    PlannedGroup,
    PlannedPool,
    planned,
)
from sim.layout.plans.types import content_bytes, natural_types, page_bytes
from sim.units import cdiv


def lcm_page(given: PlanInput, *, least_large_pages: int) -> Planned:
    """Return a pool of large pages, the least common multiple of the types' pages.

    A type's page holds one block of all its layers. A state's is rounded up to a multiple of the
    attention page, which counts as page padding; with several attention types that of the largest.
    A large page belongs to one type at a time.

    Raises ConfigError where the pool has fewer than ``least_large_pages`` large pages.
    """
    types = natural_types(given)
    step = _attention_page(types)
    sizes = [_rounded(bucket, step) for bucket in types]
    large = lcm(*sizes)
    num_pages = given.memory_bytes // large
    if num_pages < least_large_pages:
        allowed = (
            f"at most 1/{least_large_pages} of the memory; the least common multiple of the pages "
            f"of {', '.join(str(size) for size in sizes)} bytes is {_short(large)} bytes"
        )
        raise ConfigError.one("lcm_page", "large page", allowed)
    groups = tuple(_group(bucket, size, large) for bucket, size in zip(types, sizes, strict=True))
    pool = PlannedPool(num_pages, large, groups, given.profile.reserved_blocks)
    return planned(given, [pool], max(len(bucket) for bucket in types))


def _attention_page(types: Sequence[Bucket]) -> int:
    """The largest page of an attention type, 1 without any."""
    pages = [page_bytes(bucket) for bucket in types if not isinstance(bucket.spec, MambaSpec)]
    return max(pages, default=1)


def _rounded(bucket: Bucket, step: int) -> int:
    size = page_bytes(bucket)
    return cdiv(size, step) * step if isinstance(bucket.spec, MambaSpec) else size


def _group(bucket: Bucket, size: int, large: int) -> PlannedGroup:
    return PlannedGroup(
        bucket.layer_names,
        bucket.spec,
        block_bytes=size,
        content_bytes=content_bytes(bucket),
        page_padding_bytes=size - content_bytes(bucket),
        per_page=large // size,
    )


def _short(value: int) -> str:
    return str(value) if value < 10**18 else f"{value:.3e}" if value < 10**300 else "over 1e300"


LCM_PAGE = MemoryPlan(
    "large pages of the least common multiple of all types' pages, cut up by type",
    "Jenga (arXiv 2503.18292); spec/layout.md B (lcm page)",
    lcm_page,
    {"least_large_pages": Parameter(64, count, "large pages that the memory must hold")},
)
