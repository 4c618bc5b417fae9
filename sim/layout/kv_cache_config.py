"""Groups of layers on a pool of blocks: what the manager is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.layout.kv_cache_spec import KVCacheSpec, UniformTypeKVCacheSpecs


@dataclass(frozen=True, slots=True)
class KVCacheGroupSpec:
    """Layers that share one block table."""

    layer_names: tuple[str, ...]
    kv_cache_spec: KVCacheSpec
    is_eagle_group: bool = False


@dataclass(frozen=True, slots=True)
class KVCacheTensor:
    """One allocation of ``size`` bytes, shared by at most one layer of each group.

    In a packed pool all records are one allocation: block b of this one starts at
    ``b * block_stride + offset``. Otherwise offset and stride are 0.
    """

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


Groups = Sequence[KVCacheGroupSpec]
Slots = dict[int, list[list[str]]]


def is_bundle(group: KVCacheGroupSpec) -> bool:
    """Return whether each layer of the group has a page of its own."""
    return isinstance(group.kv_cache_spec, UniformTypeKVCacheSpecs)


def is_single_bundle(groups: Groups) -> bool:
    """Return whether one bundle is all there is: one tensor per layer."""
    return len(groups) == 1 and is_bundle(groups[0])


def is_packed(groups: Groups, *, cross_layers_blocks: bool = False) -> bool:
    """Return whether a block's pages lie side by side in one allocation.

    So they do where every group is a bundle, or where the user asks for it; one group is never
    packed. Source: spec/layout.md 7.
    """
    return len(groups) > 1 and (cross_layers_blocks or all(is_bundle(g) for g in groups))


def longest_group(groups: Groups) -> int:
    """Return the number of layers of the longest group: pages per block of a plain pool."""
    return max(len(group.layer_names) for group in groups)


def layer_specs(group: KVCacheGroupSpec) -> list[tuple[str, KVCacheSpec]]:
    """Return the group's layers, each with its own spec."""
    spec = group.kv_cache_spec
    if not isinstance(spec, UniformTypeKVCacheSpecs):
        return [(name, spec) for name in group.layer_names]
    own = dict(spec.members)
    return [(name, own[name]) for name in group.layer_names]


def page_bytes(group: KVCacheGroupSpec) -> int:
    """Return the bytes of one block's pages that belong to layers of the group."""
    return sum(spec.page_size_bytes for _, spec in layer_specs(group))


def packed_slots(groups: Groups) -> Slots:
    """Return by page size, in first-seen order, the layers of each slot of a packed block.

    Slot k of a page size holds the k-th layer of that page size of every group.
    """
    slots: Slots = {}
    for group in groups:
        used: dict[int, int] = {}
        for name, spec in layer_specs(group):
            page = spec.page_size_bytes
            rows, k = slots.setdefault(page, []), used.get(page, 0)
            if k == len(rows):
                rows.append([])
            rows[k].append(name)
            used[page] = k + 1
    return slots


def slots_per_block(groups: Groups, *, packed: bool = False) -> int:
    """Return how many pages one block has: those of the longest group, or those laid side by side.

    Pages of a bundle differ in size.
    """
    if packed:
        return sum(len(rows) for rows in packed_slots(groups).values())
    return longest_group(groups) if groups else 0


def bytes_per_block(groups: Groups, *, packed: bool = False) -> int:
    """Return what one block of the pool occupies. Source: spec/layout.md 8 (Q).

    A bundle: the pages of all its layers. Packed: the pages laid side by side. Otherwise the
    common page, once per layer of the longest group. Without groups 0.
    """
    if not groups:
        return 0
    page = groups[0].kv_cache_spec.page_size_bytes
    if is_single_bundle(groups):
        return page
    if packed:
        return sum(size * len(rows) for size, rows in packed_slots(groups).items())
    return longest_group(groups) * page


def num_blocks_in(groups: Groups, memory_bytes: int, *, packed: bool = False) -> int:
    """Return how many blocks fit; 1 where there is nothing to hold. Source: spec/layout.md 7."""
    if not groups:
        return 1
    return max(0, memory_bytes // bytes_per_block(groups, packed=packed))


def kv_cache_config(groups: Groups, num_blocks: int, *, packed: bool = False) -> KVCacheConfig:
    """Return the pool of ``num_blocks`` blocks. Source: spec/layout.md 7."""
    if not groups:
        tensors = ()
    elif is_single_bundle(groups):
        tensors = _own_tensors(groups[0], num_blocks)
    elif packed:
        tensors = _packed_tensors(groups, num_blocks)
    else:
        tensors = _shared_tensors(groups, num_blocks)
    return KVCacheConfig(num_blocks, tensors, tuple(groups))


def _own_tensors(group: KVCacheGroupSpec, num_blocks: int) -> tuple[KVCacheTensor, ...]:
    """A bundle: each layer has a tensor of its own page size."""
    return tuple(
        KVCacheTensor(spec.page_size_bytes * num_blocks, (name,))
        for name, spec in layer_specs(group)
    )


def _packed_tensors(groups: Groups, num_blocks: int) -> tuple[KVCacheTensor, ...]:
    stride = bytes_per_block(groups, packed=True)
    tensors, offset = [], 0
    for page, rows in packed_slots(groups).items():
        for names in rows:
            tensors.append(KVCacheTensor(stride * num_blocks, tuple(names), offset, stride))
            offset += page
    return tuple(tensors)


def _shared_tensors(groups: Groups, num_blocks: int) -> tuple[KVCacheTensor, ...]:
    """The plain pool: tensor i is shared by the i-th layer of every group that has one."""
    size = groups[0].kv_cache_spec.page_size_bytes * num_blocks
    return tuple(
        KVCacheTensor(size, tuple(g.layer_names[i] for g in groups if i < len(g.layer_names)))
        for i in range(longest_group(groups))
    )


def scheduler_view(config: KVCacheConfig) -> KVCacheConfig:
    """Return the pool as the scheduler sees it: a bundle is its first layer's spec.

    Source: spec/layout.md 1, step 11.
    """
    groups = tuple(
        replace(g, kv_cache_spec=layer_specs(g)[0][1]) if is_bundle(g) and g.layer_names else g
        for g in config.kv_cache_groups
    )
    return replace(config, kv_cache_groups=groups)


def with_shared_layers(config: KVCacheConfig, targets: dict[str, str]) -> KVCacheConfig:
    """Return the pool as a worker runs it: layers without a cache read their target's.

    ``targets``: layer to the layer whose cache it reads; it joins that layer's group and tensor
    and changes no number. Source: spec/layout.md 6.7.
    """

    def joined(names: tuple[str, ...]) -> tuple[str, ...]:
        readers = [reader for reader, target in targets.items() if target in names]
        return (*names, *readers)

    return KVCacheConfig(
        config.num_blocks,
        tuple(replace(t, shared_by=joined(t.shared_by)) for t in config.kv_cache_tensors),
        tuple(replace(g, layer_names=joined(g.layer_names)) for g in config.kv_cache_groups),
    )
