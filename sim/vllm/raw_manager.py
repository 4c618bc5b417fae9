"""vLLM's own KVCacheManager, built from the arguments of ours."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from sim.layout.kv_cache_config import KVCacheConfig, scheduler_view
from sim.vllm.names import manager_names
from sim.vllm.requests import environment
from sim.vllm.specs import kv_cache_config as vllm_kv_cache_config

RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


def build_manager(
    kv_cache_config: KVCacheConfig,
    max_model_len: int,
    scheduler_block_size: int,
    hash_block_size: int,
    max_num_batched_tokens: int | None = None,
    enable_caching: bool = True,
    use_eagle: bool = False,
    watermark: float = 0.0,
    retention_interval: int | None = None,
    decode_context_parallel_size: int = 1,
    prefill_context_parallel_size: int = 1,
    enable_kv_cache_events: bool = False,
    log_stats: bool = True,
) -> Any:
    """Return a raw ``vllm.v1.core.kv_cache_manager.KVCacheManager``."""
    names = manager_names()
    with retention(retention_interval):
        return names.KVCacheManager(
            vllm_kv_cache_config(scheduler_view(kv_cache_config)),
            max_model_len,
            scheduler_block_size,
            hash_block_size,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_caching=enable_caching,
            use_eagle=use_eagle,
            log_stats=log_stats,
            enable_kv_cache_events=enable_kv_cache_events,
            dcp_world_size=decode_context_parallel_size,
            pcp_world_size=prefill_context_parallel_size,
            watermark=watermark,
        )


def retention(interval: int | None) -> AbstractContextManager[None]:
    """Set what vLLM reads of the retention interval while it builds something."""
    return environment(RETENTION, None if interval is None else str(interval))
