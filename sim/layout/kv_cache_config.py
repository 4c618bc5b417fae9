"""Groups of layers on a pool of blocks: what the manager is built from."""

from __future__ import annotations

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
