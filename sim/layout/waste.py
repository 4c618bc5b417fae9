"""Where the bytes go before any request arrives: padding, remainder, the null block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.layout.kv_cache_config import KVCacheGroupSpec, layer_specs
from sim.layout.kv_cache_spec import KVCacheSpec, MambaSpec, UniformTypeKVCacheSpecs

if TYPE_CHECKING:
    from sim.layout.plan import Layout
    from sim.layout.pool import Pool, WorkerPool


@dataclass(frozen=True, slots=True)
class BlockBytes:
    """One block held by a group, in bytes on all workers: the three parts sum to its whole.

    layer_padding: what a block has beyond the pages of the group's layers. page_padding: the end
    of each page behind the content. content: what can hold keys, values or states. block_size in
    tokens; is_state: the content is one recurrent state, not block_size slots.
    """

    layer_padding: int
    page_padding: int
    content: int
    block_size: int
    is_state: bool

    @property
    def bytes_per_slot(self) -> int:
        """Content of one token; of a recurrent block the whole content."""
        return self.content if self.is_state else self.content // self.block_size


def block_bytes(layout: Layout) -> tuple[BlockBytes, ...]:
    """Return for each group where the bytes of a block it holds go. Source: design.md 4.11."""
    return _parts(layout.workers, layout.bytes_per_block)


def _parts(workers: Sequence[WorkerPool], whole: int) -> tuple[BlockBytes, ...]:
    """One entry per group; each worker has all groups, with its own layers."""
    by_group = zip(*(worker.kv_cache_config.kv_cache_groups for worker in workers), strict=True)
    return tuple(_bytes_of(group, whole) for group in by_group)


def _bytes_of(group: Sequence[KVCacheGroupSpec], whole: int) -> BlockBytes:
    """One group, as each worker has it."""
    specs = [spec for own in group for _, spec in layer_specs(own)]
    pages = sum(spec.page_size_bytes for spec in specs)
    content = sum(spec.real_page_size_bytes for spec in specs)
    return BlockBytes(
        layer_padding=whole - pages,
        page_padding=pages - content,
        content=content,
        block_size=group[0].kv_cache_spec.block_size,
        is_state=_is_state(group[0].kv_cache_spec),
    )


def _is_state(spec: KVCacheSpec) -> bool:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return all(isinstance(member, MambaSpec) for member in spec.count_by_spec)
    return isinstance(spec, MambaSpec)


def static_waste(pool: Pool, reserved_blocks: int) -> dict[str, int]:
    """Return what a layout wastes before it runs; all values are integers.

    Of the pools of all workers, in bytes: ``kv_memory_bytes`` (what the user gave, or the pool if
    an override makes it larger), ``remainder_bytes`` (memory that fills no block, or is stranded
    because another worker has less), ``null_block_bytes``.
    Of one request of the maximum length, by the per-request maximum of each group's spec:
    ``request_blocks``, ``request_bytes``, ``request_layer_padding_bytes`` (idle pages weighted by
    the blocks that their group holds), ``request_page_padding_bytes``, ``request_page_slots`` and
    ``request_idle_page_slots``. ``padding_layers`` counts missing layers over all groups; in a
    pool of several bundles slots differ in size.
    Source: design.md 4.11; spec/layout.md B and 15.10.
    """
    workers = pool.workers
    pools = [w.kv_cache_config.num_blocks * w.bytes_per_block for w in workers]
    memory = [w.memory_bytes for w in workers]
    idle = _idle_slots(workers)
    return {
        "kv_memory_bytes": sum(max(m, p) for m, p in zip(memory, pools, strict=True)),
        "remainder_bytes": sum(max(m - p, 0) for m, p in zip(memory, pools, strict=True)),
        "null_block_bytes": sum(
            min(reserved_blocks, w.kv_cache_config.num_blocks) * w.bytes_per_block for w in workers
        ),
        "padding_layers": sum(idle),
        **_request_waste(pool, idle),
    }


def _idle_slots(workers: Sequence[WorkerPool]) -> list[int]:
    """Pages of a block that no layer of the group fills, by group."""
    slots = sum(worker.slots_per_block for worker in workers)
    by_group = zip(*(worker.kv_cache_config.kv_cache_groups for worker in workers), strict=True)
    return [slots - sum(len(own.layer_names) for own in group) for group in by_group]


def _request_waste(pool: Pool, idle: Sequence[int]) -> dict[str, int]:
    held = [group.kv_cache_spec.max_blocks(pool.limits) for group in pool.groups]
    block = sum(worker.bytes_per_block for worker in pool.workers)
    parts = _parts(pool.workers, block)
    blocks = sum(held)
    return {
        "request_blocks": blocks,
        "request_bytes": blocks * block,
        "request_layer_padding_bytes": _weighted(held, [p.layer_padding for p in parts]),
        "request_page_padding_bytes": _weighted(held, [p.page_padding for p in parts]),
        "request_page_slots": blocks * sum(worker.slots_per_block for worker in pool.workers),
        "request_idle_page_slots": _weighted(held, idle),
    }


def _weighted(blocks: Sequence[int], values: Sequence[int]) -> int:
    return sum(n * value for n, value in zip(blocks, values, strict=True))
