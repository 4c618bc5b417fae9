"""Layers of a model to specs: block sizes and dtypes applied."""

from __future__ import annotations

from dataclasses import dataclass

from sim.layout.block_size import BlockSizes
from sim.layout.kv_cache_spec import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from sim.models.model_config import AttentionLayer, LayerSpec, ModelConfig, RecurrentLayer


@dataclass(frozen=True, slots=True)
class SpecBuilder:
    """Turns layers into specs.

    window_block_size: tokens per block of windowed layers, which ignore the user's block size.
    Source: spec/layout.md 2.3.
    """

    sizes: BlockSizes
    window_block_size: int
    kv_dtype_bytes: int
    state_dtype_bytes: dict[str, int]
    mamba_cache_mode: str

    def specs_of(self, model: ModelConfig) -> dict[str, KVCacheSpec]:
        """Return layer name to spec, in order of registration."""
        return {layer.name: self.spec_of(layer) for layer in model.layers}

    def spec_of(self, layer: LayerSpec) -> KVCacheSpec:
        """Return the spec of one layer."""
        if isinstance(layer, RecurrentLayer):
            return self._recurrent(layer)
        if isinstance(layer, AttentionLayer):
            return self._attention(layer)
        raise TypeError(f"no spec for a layer of class {type(layer).__name__}")

    def _attention(self, layer: AttentionLayer) -> KVCacheSpec:
        if layer.sliding_window is None:
            return FullAttentionSpec(
                block_size=self.sizes.block_size,
                num_kv_heads=layer.num_kv_heads,
                head_size=layer.head_size,
                dtype_bytes=self.kv_dtype_bytes,
            )
        return SlidingWindowSpec(
            block_size=self.window_block_size,
            num_kv_heads=layer.num_kv_heads,
            head_size=layer.head_size,
            dtype_bytes=self.kv_dtype_bytes,
            sliding_window=layer.sliding_window,
        )

    def _recurrent(self, layer: RecurrentLayer) -> MambaSpec:
        return MambaSpec(
            block_size=self.sizes.mamba_block_size,
            shapes=tuple(tensor.shape for tensor in layer.tensors),
            dtype_bytes=tuple(self.state_dtype_bytes[t.role] for t in layer.tensors),
            mamba_type=layer.flavour,
            mamba_cache_mode=self.mamba_cache_mode,
            page_size_padded=self.sizes.mamba_page_size_padded,
        )
