"""What one layer keeps per token or per sequence: the spec kinds, one family per file."""

from __future__ import annotations

from sim.layout.kv_cache_spec.attention import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
)
from sim.layout.kv_cache_spec.base import KVCacheSpec, MemoryLimits
from sim.layout.kv_cache_spec.bundle import UniformTypeKVCacheSpecs
from sim.layout.kv_cache_spec.full import (
    FullAttentionSpec,
    FullFamilySpec,
    RSWASpec,
    SinkFullAttentionSpec,
    TQFullAttentionSpec,
)
from sim.layout.kv_cache_spec.mamba import MambaSpec
from sim.layout.kv_cache_spec.mla import (
    HiddenStateCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
)
from sim.layout.kv_cache_spec.quantisation import QuantMode
from sim.layout.kv_cache_spec.sliding_window import SlidingWindowSpec

__all__ = [
    "AttentionSpec",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "FullAttentionSpec",
    "FullFamilySpec",
    "HiddenStateCacheSpec",
    "KVCacheSpec",
    "MLAAttentionSpec",
    "MambaSpec",
    "MemoryLimits",
    "QuantMode",
    "RSWASpec",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "TQFullAttentionSpec",
    "UniformTypeKVCacheSpecs",
]
