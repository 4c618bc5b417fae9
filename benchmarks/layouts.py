"""The four pools that the comparison with the reference uses: groups and sizes, no model needed."""

from __future__ import annotations

from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)

BUDGET, MAX_NUM_SEQS = 2048, 64  # tokens of a step, requests that run
ATTENTION = {"num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
BLOCK_SIZE = {"full": 16, "swa3": 16, "gemma3": 16, "mamba": 64}
# Small enough that blocks are evicted and requests preempted.
NUM_BLOCKS = {"full": 1200, "swa3": 2400, "gemma3": 5200, "mamba": 700}


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


def kv_cache_config(name: str) -> KVCacheConfig:
    """Return the groups of a configuration: full, swa3 (3 groups), gemma3 (7), mamba (align)."""
    groups = tuple(
        KVCacheGroupSpec((f"layer.{place}",), spec) for place, spec in enumerate(SPECS[name]())
    )
    return KVCacheConfig(NUM_BLOCKS[name], (), groups)
