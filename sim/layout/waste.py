"""Where the bytes go before any request arrives: padding, remainder, the null block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.layout.kv_cache_config import (
    KVCacheConfig,
    KVCacheGroupSpec,
    bytes_per_block,
    longest_group,
)
from sim.layout.kv_cache_spec import MambaSpec, MemoryLimits

if TYPE_CHECKING:
    from sim.layout.plan import Layout


@dataclass(frozen=True, slots=True)
class BlockBytes:
    """One block held by a group, in bytes: the three parts sum to the pool's block.

    layer_padding: slots of layers that the group lacks to the longest real group. page_padding:
    the end of each page behind the content. content: what can hold keys, values or states.
    block_size in tokens; is_state: the content is one recurrent state, not block_size slots.
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
    groups = layout.kv_cache_config.kv_cache_groups
    longest = longest_group(groups)
    return tuple(_bytes_of(group, longest) for group in groups)


def _bytes_of(group: KVCacheGroupSpec, longest: int) -> BlockBytes:
    spec, num_layers = group.kv_cache_spec, len(group.layer_names)
    content = num_layers * spec.real_page_size_bytes
    return BlockBytes(
        layer_padding=(longest - num_layers) * spec.page_size_bytes,
        page_padding=num_layers * spec.page_size_bytes - content,
        content=content,
        block_size=spec.block_size,
        is_state=isinstance(spec, MambaSpec),
    )


def static_waste(
    config: KVCacheConfig, limits: MemoryLimits, memory_bytes: int, reserved_blocks: int
) -> dict[str, int]:
    """Return what a layout wastes before it runs; all values are integers.

    Of the pool, in bytes: ``kv_memory_bytes`` (what the user gave, or the pool if an override
    makes it larger), ``remainder_bytes`` (memory that fills no block), ``null_block_bytes``.
    Of one request of the maximum length, by the per-request maximum of each group's spec:
    ``request_blocks``, ``request_bytes``, ``request_layer_padding_bytes`` (idle pages weighted by
    the blocks that their group holds), ``request_page_padding_bytes``, ``request_page_slots`` and
    ``request_idle_page_slots``. ``padding_layers`` counts missing layers over all groups.
    Source: design.md 4.11; spec/layout.md B and 15.10.
    """
    groups = config.kv_cache_groups
    block = bytes_per_block(groups)
    pool = config.num_blocks * block
    return {
        "kv_memory_bytes": max(memory_bytes, pool),
        "remainder_bytes": max(memory_bytes - pool, 0),
        "null_block_bytes": min(reserved_blocks, config.num_blocks) * block,
        "padding_layers": sum(longest_group(groups) - len(g.layer_names) for g in groups),
        **_request_waste(groups, limits),
    }


def _request_waste(groups: Sequence[KVCacheGroupSpec], limits: MemoryLimits) -> dict[str, int]:
    longest = longest_group(groups)
    held = [group.kv_cache_spec.max_blocks(limits) for group in groups]
    parts = [_bytes_of(group, longest) for group in groups]
    idle = [n * (longest - len(g.layer_names)) for n, g in zip(held, groups, strict=True)]
    return {
        "request_blocks": sum(held),
        "request_bytes": sum(held) * bytes_per_block(groups),
        "request_layer_padding_bytes": _weighted(held, [p.layer_padding for p in parts]),
        "request_page_padding_bytes": _weighted(held, [p.page_padding for p in parts]),
        "request_page_slots": sum(held) * longest,
        "request_idle_page_slots": sum(idle),
    }


def _weighted(blocks: Sequence[int], num_bytes: Sequence[int]) -> int:
    return sum(n * b for n, b in zip(blocks, num_bytes, strict=True))
