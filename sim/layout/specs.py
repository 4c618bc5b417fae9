"""Layers of a model to specs: block sizes, dtypes and backends applied."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.errors import ConfigError
from sim.layout.backends import AttentionBackend, backend_of, default_backend
from sim.layout.block_size import BlockSizes
from sim.layout.dtypes import KVCacheDtype, turboquant_slot_bytes
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    QuantMode,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from sim.layout.kv_cache_spec.mla import DEEPSEEK_V4, DS_MLA
from sim.models.model_config import (
    AttentionLayer,
    CompressedIndexerLayer,
    CompressedMLALayer,
    CompressorStateLayer,
    CrossAttentionLayer,
    HiddenStateLayer,
    IndexerLayer,
    LayerSpec,
    MLALayer,
    ModelConfig,
    RecurrentLayer,
    SlidingMLALayer,
)

SLIDING_WINDOW = "sliding_window"
V4_WINDOW_BLOCK_SIZE = 64
_V4_ALIGNMENT = 512
_V4_DS_MLA_ALIGNMENT = 576
_BLOCK_NUMBER = re.compile(r"[A-Z](\d+)")
_SKIP_KEY = "kv_cache_dtype_skip_layers"


@dataclass(frozen=True, slots=True)
class SpecBuilder:
    """Turns layers into specs.

    skip_layers: blocks, or all windowed layers, that keep the model's dtype. dtypes are those of
    one rank's cache. Source: spec/layout.md 2.3.
    """

    sizes: BlockSizes
    dtype: KVCacheDtype
    model_dtype_bytes: int
    state_dtype_bytes: dict[str, int]
    mamba_cache_mode: str
    num_speculative_blocks: int = 0
    skip_layers: frozenset[str] = frozenset()
    attention_backend: str | None = None

    def specs_of(self, model: ModelConfig) -> dict[str, KVCacheSpec]:
        """Return layer name to spec, in order of registration."""
        return {layer.name: self.spec_of(layer) for layer in model.layers}

    def spec_of(self, layer: LayerSpec) -> KVCacheSpec:
        """Return the spec of one layer."""
        build = _BUILD.get(type(layer))
        if build is None:
            raise TypeError(f"no spec for a layer of class {type(layer).__name__}")
        return build(self, layer)

    def backend(self, layer: LayerSpec) -> AttentionBackend:
        """Return the backend that serves an attention layer."""
        if isinstance(layer, AttentionLayer) and self._in_slots(layer):
            return default_backend("turboquant")
        return backend_of(layer, self.attention_backend)

    def _in_slots(self, layer: AttentionLayer) -> bool:
        return self.dtype.is_turboquant and layer.kind == "full" and not self._keeps_dtype(layer)

    def _keeps_dtype(self, layer: AttentionLayer) -> bool:
        if layer.dtype_bytes is not None:
            return True
        match = _BLOCK_NUMBER.match(layer.name)
        windowed = layer.sliding_window is not None and SLIDING_WINDOW in self.skip_layers
        return windowed or (match is not None and match[1] in self.skip_layers)

    def _indexes(self, layer: Any) -> bool:
        backend = self.backend(layer)
        return layer.indexes_kv_by_block_stride and backend.indexes_kv_by_block_stride

    def _stored(self, layer: AttentionLayer) -> dict[str, Any]:
        """Heads, sizes and dtype of keys and values."""
        keeps = self._keeps_dtype(layer)
        wide = layer.dtype_bytes or self.model_dtype_bytes
        return {
            "num_kv_heads": layer.num_kv_heads,
            "head_size": layer.head_size,
            "dtype_bytes": wide if keeps else self.dtype.dtype_bytes,
            "quant_mode": QuantMode.NONE if keeps else self.dtype.quant_mode,
            "indexes_kv_by_block_stride": self._indexes(layer),
        }

    def attention(self, layer: AttentionLayer) -> KVCacheSpec:
        """Full, TurboQuant, windowed or chunked attention."""
        fields = self._stored(layer)
        if layer.sliding_window is not None:
            return self._windowed(layer, fields)
        fields["block_size"] = self.sizes.block_size
        if layer.attention_chunk_size is not None:
            chunk = layer.attention_chunk_size
            return ChunkedLocalAttentionSpec(**fields, attention_chunk_size=chunk)
        fields |= {"head_size_v": layer.head_size_v, "non_causal": layer.non_causal}
        if self._in_slots(layer):
            slot = turboquant_slot_bytes(self.dtype.name, layer.head_size)
            return TQFullAttentionSpec(**fields, tq_slot_size=slot)
        return FullAttentionSpec(**fields)

    def _windowed(self, layer: AttentionLayer, fields: dict[str, Any]) -> KVCacheSpec:
        """Windows choose their own block size from what their backend's kernels take."""
        listed, padded = self.backend(layer).listed_sizes, self.sizes.window_page_size_padded

        def with_block(block_size: int, page: int | None = None) -> SlidingWindowSpec:
            return SlidingWindowSpec(
                **fields,
                block_size=block_size,
                head_size_v=layer.head_size_v,
                sliding_window=layer.sliding_window or 0,
                page_size_padded=page,
            )

        if padded is None:
            return with_block(listed[0])
        fitting = [size for size in listed if with_block(size).page_size_bytes <= padded]
        return with_block(max(fitting, default=listed[0]), padded)

    def cross(self, layer: CrossAttentionLayer) -> KVCacheSpec:
        """The encoder's keys and values."""
        return CrossAttentionSpec(
            block_size=self.sizes.block_size,
            num_kv_heads=layer.num_kv_heads,
            head_size=layer.head_size,
            dtype_bytes=self.dtype.dtype_bytes,
            quant_mode=self.dtype.quant_mode,
            indexes_kv_by_block_stride=self._indexes(layer),
        )

    def mla(self, layer: MLALayer) -> KVCacheSpec:
        """Latent vectors; their quantisation mode is none whatever the dtype."""
        return self._latent(layer, self.dtype.dtype_bytes, self.dtype.name)

    def indexer(self, layer: IndexerLayer | CompressedIndexerLayer) -> KVCacheSpec:
        """Keys of an indexer, one byte per element."""
        return self._latent(layer, 1, None)

    def compressed(self, layer: CompressedMLALayer) -> KVCacheSpec:
        """DeepSeek-V4's main cache."""
        return self._latent(layer, self.dtype.dtype_bytes, self.dtype.name, DEEPSEEK_V4)

    def _latent(
        self, layer: Any, dtype_bytes: int, dtype_name: str | None, version: str | None = None
    ) -> MLAAttentionSpec:
        ratio = getattr(layer, "compress_ratio", None)
        return MLAAttentionSpec(
            block_size=self.sizes.block_size,
            num_kv_heads=1,
            head_size=layer.head_size,
            dtype_bytes=dtype_bytes,
            indexes_kv_by_block_stride=self._indexes(layer),
            cache_dtype_str=dtype_name,
            compress_ratio=ratio or 1,
            alignment=self._alignment if ratio else None,
            model_version=version,
        )

    @property
    def _alignment(self) -> int:
        return _V4_DS_MLA_ALIGNMENT if self.dtype.name == DS_MLA else _V4_ALIGNMENT

    def sliding_mla(self, layer: SlidingMLALayer) -> KVCacheSpec:
        """DeepSeek-V4's window of plain vectors."""
        return self._latent_window(
            layer, V4_WINDOW_BLOCK_SIZE, self.dtype.dtype_bytes, self.dtype.name, DEEPSEEK_V4
        )

    def compressor_state(self, layer: CompressorStateLayer) -> KVCacheSpec:
        """DeepSeek-V4's states of the last tokens."""
        return self._latent_window(layer, layer.block_size, layer.dtype_bytes, None, None)

    def _latent_window(
        self,
        layer: SlidingMLALayer | CompressorStateLayer,
        block_size: int,
        dtype_bytes: int,
        dtype_name: str | None,
        version: str | None,
    ) -> KVCacheSpec:
        return SlidingWindowMLASpec(
            block_size=block_size,
            num_kv_heads=1,
            head_size=layer.head_size,
            dtype_bytes=dtype_bytes,
            indexes_kv_by_block_stride=self._indexes(layer),
            sliding_window=layer.sliding_window,
            cache_dtype_str=dtype_name,
            alignment=self._alignment,
            model_version=version,
        )

    def hidden_state(self, layer: HiddenStateLayer) -> KVCacheSpec:
        """Hidden states; grouping sets the block size where pages must be equal."""
        return HiddenStateCacheSpec(
            block_size=self.sizes.block_size,
            num_kv_heads=layer.num_heads,
            head_size=layer.head_size,
            dtype_bytes=self.model_dtype_bytes,
            indexes_kv_by_block_stride=False,
        )

    def recurrent(self, layer: RecurrentLayer) -> KVCacheSpec:
        """A state of fixed size."""
        sizes = (t.dtype_bytes or self.state_dtype_bytes[t.role] for t in layer.tensors)
        return MambaSpec(
            block_size=self.sizes.mamba_block_size,
            shapes=tuple(tensor.shape for tensor in layer.tensors),
            dtype_bytes=tuple(sizes),
            mamba_type=layer.flavour,
            mamba_cache_mode=self.mamba_cache_mode,
            num_speculative_blocks=self.num_speculative_blocks,
            page_size_padded=self.sizes.mamba_page_size_padded,
        )


_BUILD: dict[type[LayerSpec], Callable[[SpecBuilder, Any], KVCacheSpec]] = {
    AttentionLayer: SpecBuilder.attention,
    CrossAttentionLayer: SpecBuilder.cross,
    MLALayer: SpecBuilder.mla,
    IndexerLayer: SpecBuilder.indexer,
    CompressedMLALayer: SpecBuilder.compressed,
    CompressedIndexerLayer: SpecBuilder.indexer,
    SlidingMLALayer: SpecBuilder.sliding_mla,
    CompressorStateLayer: SpecBuilder.compressor_state,
    HiddenStateLayer: SpecBuilder.hidden_state,
    RecurrentLayer: SpecBuilder.recurrent,
}

# Layers whose block is the cache's block size; the others choose their own.
_OWN_BLOCK_SIZE = (SlidingMLALayer, CompressorStateLayer, HiddenStateLayer, RecurrentLayer)


def uses_cache_block_size(layer: LayerSpec) -> bool:
    """Return whether the layer's block size is the cache's. Source: spec/layout.md 2.3."""
    if isinstance(layer, AttentionLayer):
        return layer.sliding_window is None
    return not isinstance(layer, _OWN_BLOCK_SIZE)


def skipped_layers(
    model: ModelConfig, dtype: KVCacheDtype, wanted: tuple[str, ...]
) -> frozenset[str]:
    """Return the blocks that keep the model's dtype, as numbers in text, or ``sliding_window``.

    TurboQuant keeps the first two and last two blocks of a model without recurrent layers.

    Raises
    ------
    ConfigError
        An entry that is neither.

    Source: spec/layout.md 2.1, 2.2.
    """
    for entry in wanted:
        number = int(entry) if entry.isdecimal() and len(entry) < 9 else -1
        if entry != SLIDING_WINDOW and not 0 <= number < model.dims.num_hidden_layers:
            last = model.dims.num_hidden_layers - 1
            allowed = f"a layer number from 0 to {last}, or {SLIDING_WINDOW}"
            raise ConfigError.one(_SKIP_KEY, entry, allowed)
    skipped = {str(int(entry)) if entry.isdecimal() else entry for entry in wanted}
    if dtype.is_turboquant and not model.has_recurrent:
        blocks = [str(idx) for idx in range(model.dims.num_hidden_layers)]
        skipped |= {*blocks[:2], *blocks[-2:]}
    return frozenset(skipped)
