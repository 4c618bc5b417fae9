"""From one rank's layers and the settings to specs: dtypes, backends, the three phases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

from sim.errors import ConfigError
from sim.layout.backends import check_backend, kernel_block_size
from sim.layout.block_size import (
    BlockSizes,
    align_pages,
    cover_wide_pages,
    preferred_block_size,
    recurrent_block_size,
)
from sim.layout.dtypes import KVCacheDtype, kv_cache_dtype, state_dtype_bytes
from sim.layout.kv_cache_spec import FullAttentionSpec, KVCacheSpec, QuantMode, TQFullAttentionSpec
from sim.layout.settings import LayoutSettings
from sim.layout.specs import (
    SpecBuilder,
    skipped_layers,
    turboquant_slot_bytes,
    uses_cache_block_size,
)
from sim.models.model_config import LayerSpec, MLALayer, ModelConfig, RecurrentLayer


@dataclass(frozen=True, slots=True)
class ResolvedSpecs:
    """Specs of all layers, and the block sizes that they were made with."""

    sizes: BlockSizes
    specs: dict[str, KVCacheSpec]


def resolve_specs(
    model: ModelConfig, settings: LayoutSettings, max_model_len: int, default_block_size: int
) -> ResolvedSpecs:
    """Return block sizes and specs of the layers that one rank holds.

    ``settings`` has its caching and mode resolved. Source: spec/layout.md 2.3, 3.

    Raises
    ------
    ConfigError
        Unknown dtypes or backends, a block size that no kernel takes.
    """
    dtype = kv_cache_dtype(settings.kv_cache_dtype, model.dtype_bytes)
    builder = SpecBuilder(
        sizes=BlockSizes(default_block_size, default_block_size),
        dtype=dtype,
        model_dtype_bytes=model.dtype_bytes,
        state_dtype_bytes=state_dtype_bytes(
            settings.mamba_cache_dtype,
            settings.mamba_ssm_cache_dtype,
            model.dtype_bytes,
            model.mamba_ssm_cache_dtype,
        ),
        mamba_cache_mode=settings.mamba_cache_mode or "none",
        num_speculative_blocks=settings.num_speculative_tokens,
        skip_layers=skipped_layers(model, dtype, settings.kv_cache_dtype_skip_layers),
        attention_backend=settings.attention_backend,
    )
    attention = [la for la in model.layers if not isinstance(la, RecurrentLayer)]
    check_backend(model, attention, settings.attention_backend)
    sizes = _block_sizes(model, settings, builder, max_model_len)
    backends = [builder.backend(la) for la in attention if uses_cache_block_size(la)]
    kernel_block_size(backends, sizes.block_size)
    return ResolvedSpecs(sizes, replace(builder, sizes=sizes).specs_of(model))


def _block_sizes(
    model: ModelConfig, settings: LayoutSettings, builder: SpecBuilder, max_model_len: int
) -> BlockSizes:
    default = builder.sizes.block_size
    first = model.first_attention_layer
    backend = None if first is None else builder.backend(first)
    block_size, lines = preferred_block_size(settings.block_size, default, backend)
    configured = default if settings.block_size is None else settings.block_size
    sizes = BlockSizes(
        block_size, _recurrent(model, settings, configured, max_model_len), log_lines=lines
    )
    if first is None or backend is None:
        return sizes
    kernel = backend.smallest_size
    state = model.aligned_state
    if state is not None:
        sizes = align_pages(
            sizes,
            _token_bytes(first, builder),
            state.state_bytes(builder.state_dtype_bytes),
            kernel,
            builder.mamba_cache_mode,
            settings.mamba_block_size or model.mamba_chunk_size,
        )
    return _cover(first, sizes, builder, kernel)


def _recurrent(
    model: ModelConfig, settings: LayoutSettings, block_size: int, max_model_len: int
) -> int:
    if not model.has_recurrent:
        return settings.mamba_block_size or block_size
    return recurrent_block_size(
        settings.mamba_block_size,
        block_size,
        max_model_len,
        enable_prefix_caching=bool(settings.enable_prefix_caching),
    )


def _token_bytes(layer: LayerSpec, builder: SpecBuilder) -> int:
    """One token's page of one attention layer. Source: spec/layout.md 3.2 (a)."""
    dtype = builder.dtype
    if isinstance(layer, MLALayer):
        return layer.head_size * dtype.dtype_bytes
    if not dtype.is_turboquant:
        return _full_page(layer, dtype.dtype_bytes, dtype.quant_mode)
    slots = _slots_page(layer, dtype)
    if not builder.skip_layers:
        return slots
    return lcm(slots, _full_page(layer, builder.model_dtype_bytes))


def _full_page(layer: LayerSpec, dtype_bytes: int, mode: QuantMode = QuantMode.NONE) -> int:
    heads, size = _heads(layer)
    return FullAttentionSpec(
        block_size=1,
        num_kv_heads=heads,
        head_size=size,
        dtype_bytes=dtype_bytes,
        quant_mode=mode,
    ).page_size_bytes


def _slots_page(layer: LayerSpec, dtype: KVCacheDtype) -> int:
    heads, size = _heads(layer)
    return TQFullAttentionSpec(
        block_size=1,
        num_kv_heads=heads,
        head_size=size,
        dtype_bytes=dtype.dtype_bytes,
        tq_slot_size=turboquant_slot_bytes(dtype.name, size),
    ).page_size_bytes


def _heads(layer: LayerSpec) -> tuple[int, int]:
    """Model-level numbers: KV heads and head size, values taken to be as wide as keys."""
    heads = getattr(layer, "num_kv_heads", 1)
    size = getattr(layer, "head_size", None)
    if size is None:
        raise ConfigError.one("model", layer.name, "attention with heads beside recurrent layers")
    return heads, size


def _cover(first: LayerSpec, sizes: BlockSizes, builder: SpecBuilder, kernel: int) -> BlockSizes:
    """Phase 3, where some layers keep the model's dtype.

    TurboQuant is left out: its slots are not the full-attention page that the phase goes by, and
    the engine's own layout with skipped layers (spec/layout.md 14) keeps the block of 16.
    """
    dtype = builder.dtype
    if not builder.skip_layers or dtype.is_turboquant or isinstance(first, MLALayer):
        return sizes
    primary = _full_page(first, dtype.dtype_bytes, dtype.quant_mode)
    return cover_wide_pages(sizes, primary, _full_page(first, builder.model_dtype_bytes), kernel)
