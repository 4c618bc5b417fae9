"""Managers and specs of the kinds that only the simulator has, as small as they can be."""

from __future__ import annotations

from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
)
from tests.conftest import load_implementation
from tests.helpers import make_kv_cache_config, make_manager

SIM = load_implementation("sim")
ATTENTION = {"num_kv_heads": 1, "head_size": 8, "dtype_bytes": 2}


def chunked(block_size: int, chunk: int) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(block_size=block_size, attention_chunk_size=chunk, **ATTENTION)


def rswa(block_size: int, window: int) -> RSWASpec:
    return RSWASpec(block_size=block_size, rswa_window=window, **ATTENTION)


def sink(block_size: int, length: int) -> SinkFullAttentionSpec:
    return SinkFullAttentionSpec(block_size=block_size, sink_len=length, **ATTENTION)


def cross(block_size: int) -> CrossAttentionSpec:
    return CrossAttentionSpec(block_size=block_size, **ATTENTION)


def manager_of(*specs, num_blocks: int = 60, **settings):
    """Return the simulator's manager of these groups."""
    return make_manager(SIM, list(specs), num_blocks=num_blocks, **settings)


def parallel_manager(spec, block_size: int, *, num_blocks: int = 60, **settings):
    """Return a manager of one group whose blocks are dealt out over ranks: larger blocks."""
    config = make_kv_cache_config([spec], num_blocks=num_blocks)
    return SIM.KVCacheManager(config, 8192, block_size, block_size, **settings)


def group(manager, group_id: int = 0):
    return manager.coordinator.single_type_managers[group_id]


def num_registered(manager, group_id: int) -> int:
    """Return how many blocks of a group are in the index."""
    pool = manager.block_pool
    pairs = zip(pool.group_id, pool.prefix_id, strict=True)
    return sum(1 for g, prefix_id in pairs if g == group_id and prefix_id >= 0)


def predict(manager, request, num_tokens: int, rows=None, computed: int = 0) -> int:
    """Return how many blocks the manager expects ``num_tokens`` to take, in all groups."""
    rows = manager.empty_kv_cache_blocks if rows is None else rows
    return manager.coordinator.get_num_blocks_to_allocate(
        request.request_id, num_tokens, rows, computed, num_tokens
    )
