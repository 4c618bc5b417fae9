"""The pools that comparisons with the reference use: four without a model, and those of models."""

from __future__ import annotations

from dataclasses import dataclass

from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from sim.layout.plan import Layout

MAX_MODEL_LEN = 16384
BUDGET, MAX_NUM_SEQS = 2048, 64  # tokens of a step, requests that run
ATTENTION = {"num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
BLOCK_SIZE = {"full": 16, "swa3": 16, "gemma3": 16, "mamba": 64}
# Small enough that blocks are evicted and requests preempted.
NUM_BLOCKS = {"full": 1200, "swa3": 2400, "gemma3": 5200, "mamba": 700}


@dataclass(frozen=True, slots=True)
class Pool:
    """What a manager and a scheduler are built with.

    block_size : the scheduler's; cache_block_size : the one that ``align`` cuts chunks on
    budget : tokens of a step; max_num_seqs : requests that run
    """

    kv_cache_config: KVCacheConfig
    max_model_len: int
    block_size: int
    hash_block_size: int
    cache_block_size: int
    mamba_cache_mode: str
    budget: int
    max_num_seqs: int

    @property
    def align(self) -> int | None:
        """Block size that prefill chunks end on, or None."""
        return self.cache_block_size if self.mamba_cache_mode == "align" else None


def _full(block_size: int) -> KVCacheSpec:
    return FullAttentionSpec(block_size=block_size, **ATTENTION)


def _window() -> KVCacheSpec:
    return SlidingWindowSpec(block_size=16, sliding_window=1024, **ATTENTION)


def _state() -> KVCacheSpec:
    return MambaSpec(
        block_size=64,
        shapes=((8, 128, 64), (3, 512)),
        dtype_bytes=(4, 4),
        mamba_cache_mode="align",
    )


SPECS = {
    "full": lambda: [_full(16)],
    "swa3": lambda: [_full(16), *(_window() for _ in range(2))],
    "gemma3": lambda: [_full(16), *(_window() for _ in range(6))],
    "mamba": lambda: [_full(64), *(_state() for _ in range(3))],
}


def pool(name: str) -> Pool:
    """Return a configuration: full, swa3 (3 groups), gemma3 (7), mamba (align)."""
    mode, size = "align" if name == "mamba" else "none", BLOCK_SIZE[name]
    return Pool(kv_cache_config(name), MAX_MODEL_LEN, size, size, size, mode, BUDGET, MAX_NUM_SEQS)


def layout_pool(layout: Layout, budget: int, max_num_seqs: int) -> Pool:
    """Return the pool of a planned model."""
    return Pool(
        layout.kv_cache_config,
        layout.limits.max_model_len,
        layout.scheduler_block_size,
        layout.hash_block_size,
        layout.block_size,
        layout.mamba_cache_mode,
        budget,
        max_num_seqs,
    )


def kv_cache_config(name: str) -> KVCacheConfig:
    """Return the groups of a configuration, one layer in each."""
    groups = tuple(
        KVCacheGroupSpec((f"layer.{place}",), spec) for place, spec in enumerate(SPECS[name]())
    )
    return KVCacheConfig(NUM_BLOCKS[name], (), groups)
