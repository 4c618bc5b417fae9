"""Several attention layers in one page that is as large as a recurrent state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.errors import ConfigError
from sim.layout.grouping.plan import Bucket, split_consecutive, split_strided
from sim.layout.grouping.vllm import VLLM
from sim.layout.kv_cache_spec import FullFamilySpec, KVCacheSpec, MambaSpec
from sim.layout.parameters import Parameter, count
from sim.layout.plans.planned import (
    MemoryPlan,
    PlanInput,
    Planned,
    PlannedGroup,
    PlannedPool,
    planned,
)
from sim.layout.plans.types import natural_types
from sim.units import cdiv

_KEY = "multi_layer_page"


@dataclass(frozen=True, slots=True)
class _Unit:
    """What occupies one page: ``per_unit`` layers of a type, or fewer in the last unit."""

    bucket: Bucket
    spec: KVCacheSpec
    per_unit: int
    bytes_per_layer: int

    @property
    def names(self) -> list[tuple[str, ...]]:
        return split_consecutive(self.bucket.layer_names, self.per_unit)


def multi_layer_page(given: PlanInput, *, layers: int | None) -> Planned:
    """Return one pool whose page holds one state, or a block of ``layers`` attention layers.

    The attention block is ``16 x ceil(M, 16 a k)`` tokens for a state of M bytes, a bytes per token
    and layer, and k layers in a page; 16 stands for the kernel's block. States are padded to that
    page. Pages are then grouped by the engine's rule, states and attention pages being the buckets.

    Raises ConfigError for models without recurrent layers or without full attention, and for
    attention layers of several shapes.
    """
    states, attention = _states_and_attention(natural_types(given))
    per_page = min(layers or len(attention), len(attention))
    spec = attention.spec
    token_bytes = spec.page_size_bytes // spec.block_size
    largest = max(bucket.spec.real_page_size_bytes for bucket in states)
    step = spec.block_size
    block_size = step * cdiv(largest, step * token_bytes * per_page)
    page = block_size * token_bytes * per_page
    units = [_state_unit(bucket, block_size, given) for bucket in states]
    grown = replace(spec, block_size=block_size)
    units.append(_Unit(attention, grown, per_page, block_size * token_bytes))
    return _in_one_pool(given, units, page)


def _states_and_attention(types: Sequence[Bucket]) -> tuple[list[Bucket], Bucket]:
    states = [bucket for bucket in types if isinstance(bucket.spec, MambaSpec)]
    rest = [bucket for bucket in types if not isinstance(bucket.spec, MambaSpec)]
    if not states:
        raise ConfigError.one(_KEY, "no recurrent layers", "a model with recurrent layers")
    if not rest:
        raise ConfigError.one(_KEY, "no attention layers", "a model with full attention")
    if len(rest) > 1 or not isinstance(rest[0].spec, FullFamilySpec):
        kinds = ", ".join(f"{len(b)} {b.spec.kind}" for b in rest)
        raise ConfigError.one(_KEY, kinds, f"full attention layers of one shape, not {kinds}")
    return states, rest[0]


def _state_unit(bucket: Bucket, block_size: int, given: PlanInput) -> _Unit:
    """Where states are kept by block, theirs covers as many tokens as attention's."""
    spec = bucket.spec
    if given.limits.mamba_cache_mode != "none":
        spec = replace(spec, block_size=block_size)
    return _Unit(bucket, spec, 1, spec.real_page_size_bytes)


def _in_one_pool(given: PlanInput, units: Sequence[_Unit], page: int) -> Planned:
    buckets = [Bucket(u.spec, tuple(str(i) for i in range(len(u.names)))) for u in units]
    size = VLLM(buckets).group_size
    parts = [(unit, part) for unit in units for part in split_strided(unit.names, size)]
    longest = max(len(part) for _, part in parts)
    groups = tuple(_group(unit, part, longest * page, page) for unit, part in parts)
    pool = PlannedPool(
        given.memory_bytes // (longest * page),
        longest * page,
        groups,
        given.profile.reserved_blocks,
    )
    filled = sum(len(unit.bucket) for unit in units)
    slots = sum(longest * unit.per_unit for unit, _ in parts)
    return planned(given, [pool], size, slots - filled)


def _group(unit: _Unit, part: Sequence[tuple[str, ...]], block: int, page: int) -> PlannedGroup:
    names = tuple(name for one in part for name in one)
    content = len(names) * unit.bytes_per_layer
    padding = len(part) * (page - unit.bytes_per_layer) if unit.per_unit == 1 else 0
    return PlannedGroup(names, unit.spec, block, content, padding)


MULTI_LAYER_PAGE = MemoryPlan(
    "`layers` attention layers in one page of the size of a recurrent state",
    "the design text that the hybrid manager started from, case 4; spec/layout.md B",
    multi_layer_page,
    {"layers": Parameter(None, count, "attention layers of a page, all of them")},
)
