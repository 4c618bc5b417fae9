"""Full and sliding layers of one size on a small pool, as the design text draws them."""

from __future__ import annotations

from collections.abc import Mapping

from sim.core.kv_cache_manager import KVCacheManager
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    KVCacheSpec,
    MemoryLimits,
    SlidingWindowSpec,
)
from sim.layout.plan import LayoutSettings, plan_pool
from sim.request import Request

BLOCK_SIZE, WINDOW, NUM_TOKENS = 16, 32, 112  # seeds/hybrid_kv_cache_manager.txt, case 2
NUM_BLOCKS = 128
TEXT = "seeds/hybrid_kv_cache_manager.txt"
_SHAPE = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 64, "dtype_bytes": 2}
LIMITS = MemoryLimits(max_model_len=256, max_num_batched_tokens=256)


def toy_specs(num_full: int, num_sliding: int) -> dict[str, KVCacheSpec]:
    """Return layers ``full.0``, ... and ``sw.0``, ... of equal pages."""
    full = FullAttentionSpec(**_SHAPE)
    sliding = SlidingWindowSpec(**_SHAPE, sliding_window=WINDOW)
    specs: dict[str, KVCacheSpec] = {f"full.{idx}": full for idx in range(num_full)}
    return specs | {f"sw.{idx}": sliding for idx in range(num_sliding)}


def toy_pool(specs: Mapping[str, KVCacheSpec], grouping: str = "min_layers") -> KVCacheConfig:
    """Return a pool of NUM_BLOCKS blocks of these layers."""
    settings = LayoutSettings(
        kv_cache_memory_bytes=2**40,
        max_num_batched_tokens=LIMITS.max_num_batched_tokens,
        num_gpu_blocks_override=NUM_BLOCKS,
        grouping=grouping,
    )
    return plan_pool(specs, settings, LIMITS, LIMITS.max_model_len).kv_cache_config


class ToyRequest:
    """One request of 112 tokens on a manager of its own.

    Block 0 is the null block: 0 in a table means that no block is needed there.
    """

    def __init__(self, config: KVCacheConfig):
        self._manager = KVCacheManager(
            config,
            LIMITS.max_model_len,
            scheduler_block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            max_num_batched_tokens=LIMITS.max_num_batched_tokens,
        )
        prefixes = list(range(LIMITS.max_model_len // BLOCK_SIZE))
        self._request = Request("example", NUM_TOKENS, 16, prefix_ids=prefixes)

    def compute(self, num_tokens: int) -> int:
        """Allocate for so many more tokens, and return the blocks held while they are computed."""
        if self._manager.allocate_slots(self._request, num_tokens) is None:
            raise ValueError(f"{NUM_BLOCKS} blocks are too few")
        held = self.num_held
        self._request.num_computed_tokens += num_tokens
        return held

    def drop_what_no_token_reads(self) -> None:
        """Free the blocks that are out of every later token's window."""
        self._manager.remove_skipped_blocks("example", self._request.num_computed_tokens)

    def generate(self) -> int:
        """Append one token, allocate for it, and return the blocks held."""
        self._request.num_tokens += 1
        return self.compute(1)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The block table of each group."""
        return tuple(map(tuple, self._manager.get_block_ids("example")))

    @property
    def num_held(self) -> int:
        """Blocks in all tables, the null block not counted."""
        return sum(1 for table in self.tables for block_id in table if block_id)


def renumbered(tables: tuple[tuple[int, ...], ...]) -> list[list[int | None]]:
    """Return tables with blocks counted from 0 in order, None where there is no block.

    The text counts what stays; the engine's ids also name what was given back in between.
    """
    number = 0
    rows: list[list[int | None]] = []
    for table in tables:
        row: list[int | None] = []
        for block_id in table:
            row.append(number if block_id else None)
            number += bool(block_id)
        rows.append(row)
    return rows
