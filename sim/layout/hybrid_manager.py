"""The hybrid manager's switch, and what replaces the manager where it is off."""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    FullFamilySpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from sim.layout.settings import LayoutSettings
from sim.layout.uniformity import is_one_type, merge
from sim.models.model_config import ModelConfig
from sim.models.speculation import SPECULATIVE_METHODS

SWITCH = "disable_hybrid_kv_cache_manager"
_LATENCY = (
    "There is a latency regression when using chunked local attention with the hybrid KV cache "
    "manager. Disabling it, by default. To enable it, set the environment "
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1."
)
_CONNECTOR = (
    "Turning off hybrid kv cache manager because `--kv-transfer-config` selects a KV connector "
    "that does not support it."
)
_EXPLICIT = (
    "Hybrid KV cache manager was explicitly enabled but is not supported in this configuration. "
    "Consider omitting the --no-disable-hybrid-kv-cache-manager flag to let vLLM decide "
    "automatically."
)
_OFF = (
    "Hybrid KV cache manager is disabled for this hybrid model, This means we do not enable any "
    "optimizations for saving KV cache memory (e.g., dropping the KV cache outside the sliding "
    "window). The compute of layers like sliding window is still saved."
)
_CANNOT_CONVERT = (
    "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified "
    "type."
)


def is_eagle(settings: LayoutSettings) -> bool:
    """Return whether speculation is of the EAGLE type."""
    method = settings.speculative_method
    return method is not None and SPECULATIVE_METHODS[method].is_eagle


def resolve_hybrid_manager(model: ModelConfig, settings: LayoutSettings) -> tuple[bool, list[str]]:
    """Return whether the hybrid manager is off, and what the log says about it.

    Raises
    ------
    ConfigError
        It was switched on where the engine cannot have it.

    Source: spec/layout.md 5.1.
    """
    lines = []
    must_be_off = False
    if model.attention_chunk_size is not None:
        allowed = settings.allow_chunked_local_attn_with_hybrid_kv_cache
        must_be_off = is_eagle(settings) or not allowed
        lines += [] if allowed else [_LATENCY]
    if settings.disable_hybrid_kv_cache_manager is None:
        if not settings.kv_connector_supports_hma:
            return True, [*lines, _CONNECTOR]
        return must_be_off, lines
    if must_be_off and not settings.disable_hybrid_kv_cache_manager:
        raise ConfigError.one(SWITCH, False, _EXPLICIT)
    return settings.disable_hybrid_kv_cache_manager, lines


def convert_to_one_type(
    specs: Mapping[str, KVCacheSpec],
) -> tuple[dict[str, KVCacheSpec], list[str]]:
    """Return specs of one type and the log's warning; unchanged where they are of one already.

    Windows and chunks become full attention that records them; they lose the stride flag, so on
    most backends the result is a bundle.

    Raises
    ------
    ConfigError
        They cannot be converted, or have two different windows; in the engine's words.

    Source: spec/layout.md 5.2.
    """
    if _is_uniform(specs):
        return dict(specs), []
    converted = dict(specs)
    full = next((s for s in specs.values() if isinstance(s, FullFamilySpec)), None)
    local = (SlidingWindowSpec, ChunkedLocalAttentionSpec)
    if full is not None and any(isinstance(s, local) for s in specs.values()):
        converted = {name: _kept_whole(spec, full.block_size) for name, spec in specs.items()}
    if not _is_uniform(converted):
        raise ConfigError.one(SWITCH, True, _CANNOT_CONVERT)
    return converted, [_OFF]


def _is_uniform(specs: Mapping[str, KVCacheSpec]) -> bool:
    ordered = list(specs.values())
    return not ordered or merge(ordered) is not None or is_one_type(ordered)


def _kept_whole(spec: KVCacheSpec, full_block_size: int) -> KVCacheSpec:
    if isinstance(spec, SlidingWindowMLASpec):
        return _latent_kept_whole(spec, full_block_size)
    if isinstance(spec, SlidingWindowSpec):
        return FullAttentionSpec(
            block_size=spec.block_size,
            num_kv_heads=spec.num_kv_heads,
            head_size=spec.head_size,
            head_size_v=spec.head_size_v,
            dtype_bytes=spec.dtype_bytes,
            quant_mode=spec.quant_mode,
            page_size_padded=spec.page_size_padded,
            indexes_kv_by_block_stride=False,
            sliding_window=spec.sliding_window,
        )
    if isinstance(spec, ChunkedLocalAttentionSpec):  # its quantisation is lost, as in the engine
        return FullAttentionSpec(
            block_size=spec.block_size,
            num_kv_heads=spec.num_kv_heads,
            head_size=spec.head_size,
            dtype_bytes=spec.dtype_bytes,
            page_size_padded=spec.page_size_padded,
            indexes_kv_by_block_stride=False,
            attention_chunk_size=spec.attention_chunk_size,
        )
    return spec


def _latent_kept_whole(spec: SlidingWindowMLASpec, block_size: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(
        block_size=block_size,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        dtype_bytes=spec.dtype_bytes,
        page_size_padded=spec.page_size_padded,
        indexes_kv_by_block_stride=False,
        cache_dtype_str=spec.cache_dtype_str,
        alignment=spec.alignment,
        compress_ratio=spec.compress_ratio,
        model_version=spec.model_version,
    )
