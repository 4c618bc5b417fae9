"""Groups of layers on a pool of blocks: what the manager is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.layout.kv_cache_spec import KVCacheSpec


@dataclass(frozen=True, slots=True)
class KVCacheGroupSpec:
    """Layers that share one block table."""

    layer_names: tuple[str, ...]
    kv_cache_spec: KVCacheSpec
    is_eagle_group: bool = False


@dataclass(frozen=True, slots=True)
class KVCacheTensor:
    """One allocation of ``size`` bytes, shared by at most one layer of each group."""

    size: int
    shared_by: tuple[str, ...]
    offset: int = 0
    block_stride: int = 0


@dataclass(frozen=True, slots=True)
class KVCacheConfig:
    """A pool: ``num_blocks`` ids (block 0 is the null block), its tensors and its groups."""

    num_blocks: int
    kv_cache_tensors: tuple[KVCacheTensor, ...]
    kv_cache_groups: tuple[KVCacheGroupSpec, ...]


def longest_group(groups: Sequence[KVCacheGroupSpec]) -> int:
    """Return the number of layers of the longest group: pages per block of the pool."""
    return max(len(group.layer_names) for group in groups)


def bytes_per_block(groups: Sequence[KVCacheGroupSpec]) -> int:
    """Return what one block of the pool occupies: the common page, once per layer slot."""
    return longest_group(groups) * groups[0].kv_cache_spec.page_size_bytes


def num_blocks_in(groups: Sequence[KVCacheGroupSpec], memory_bytes: int) -> int:
    """Return how many blocks fit. Source: spec/layout.md 7."""
    return max(0, memory_bytes // bytes_per_block(groups))


def kv_cache_config(groups: Sequence[KVCacheGroupSpec], num_blocks: int) -> KVCacheConfig:
    """Return the pool: tensor i is shared by the i-th layer of every group that has one.

    Source: spec/layout.md 7, the plain pool.
    """
    size = groups[0].kv_cache_spec.page_size_bytes * num_blocks
    tensors = tuple(
        KVCacheTensor(size, _slot_layers(groups, slot)) for slot in range(longest_group(groups))
    )
    return KVCacheConfig(num_blocks, tensors, tuple(groups))


def _slot_layers(groups: Sequence[KVCacheGroupSpec], slot: int) -> tuple[str, ...]:
    return tuple(g.layer_names[slot] for g in groups if slot < len(g.layer_names))
