"""The kinds of cache-owning layers, before any engine setting is applied.

Sizes are those of the whole model (one rank) until `sim.models.sharding.shard` divides them.
Source: spec/layout.md 2.3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from sim.units import cdiv

INDEXER_SCALE_EVERY = 128  # fp8 values per fp32 scale in an indexer's cache
_FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One cache-owning layer; ``name`` is unique in its model."""

    name: str

    @property
    def kind(self) -> str:
        """What the layer keeps: ``full``, ``sliding``, ``mla``, ``mamba1``, ..."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer(LayerSpec):
    """Attention with ``num_kv_heads`` heads; at most one of a window and a chunk, or full.

    head_size_v: size of a value where it differs from a key's, None where it does not.
    dtype_bytes: element size where the layer has its own (a draft), None for the cache's.
    """

    num_kv_heads: int
    head_size: int
    head_size_v: int | None = None
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    non_causal: bool = False
    dtype_bytes: int | None = None
    indexes_kv_by_block_stride: bool = True

    @property
    def kind(self) -> str:
        """``sliding`` where a window is set, whether or not it ever binds; chunked; else full."""
        if self.sliding_window is not None:
            return "sliding"
        return "full" if self.attention_chunk_size is None else "chunked"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's keys and values in this layer."""
        width = self.head_size + (self.head_size_v or self.head_size)
        return self.num_kv_heads * width * (self.dtype_bytes or dtype_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttentionLayer(LayerSpec):
    """Attention of a decoder to the encoder's output, whose keys and values never grow."""

    num_kv_heads: int
    head_size: int
    indexes_kv_by_block_stride: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """``cross``."""
        return "cross"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one encoder token's keys and values."""
        return 2 * self.num_kv_heads * self.head_size * dtype_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MLALayer(LayerSpec):
    """Latent attention: one vector per token, whatever the number of heads.

    is_sparse: an indexer picks the tokens to read; such a backend does not index by block stride.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    is_sparse: bool = False

    @property
    def kind(self) -> str:
        """``mla``."""
        return "mla"

    @property
    def head_size(self) -> int:
        """Elements of the cached vector."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def indexes_kv_by_block_stride(self) -> bool:
        """True for dense latent attention."""
        return not self.is_sparse

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's latent vector."""
        return self.head_size * dtype_bytes


def indexer_entry_bytes(index_head_dim: int) -> int:
    """Bytes of one indexer key: fp8 values and one fp32 scale per 128 of them."""
    return index_head_dim + _FP32_BYTES * cdiv(index_head_dim, INDEXER_SCALE_EVERY)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerLayer(LayerSpec):
    """Key cache of a sparse-attention indexer, stored as bytes whatever the cache's dtype."""

    index_head_dim: int
    indexes_kv_by_block_stride: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """``indexer``."""
        return "indexer"

    @property
    def head_size(self) -> int:
        """Bytes of one entry, 132 for 128 values; an element is one byte."""
        return indexer_entry_bytes(self.index_head_dim)

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's key; ``dtype_bytes`` does not matter."""
        return self.head_size


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingMLALayer(LayerSpec):
    """DeepSeek-V4: the window of plain latent vectors that every layer keeps."""

    head_size: int
    sliding_window: int
    indexes_kv_by_block_stride: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """``sliding_mla``."""
        return "sliding_mla"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's vector."""
        return self.head_size * dtype_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedMLALayer(LayerSpec):
    """DeepSeek-V4: one latent vector per ``compress_ratio`` tokens."""

    head_size: int
    compress_ratio: int
    indexes_kv_by_block_stride: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """``compressed_mla_4`` or ``compressed_mla_128``."""
        return f"compressed_mla_{self.compress_ratio}"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of an entry divided by the tokens that it covers, rounded up."""
        return cdiv(self.head_size * dtype_bytes, self.compress_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedIndexerLayer(LayerSpec):
    """DeepSeek-V4: one indexer key per ``compress_ratio`` tokens."""

    index_head_dim: int
    compress_ratio: int
    indexes_kv_by_block_stride: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """``indexer_4``."""
        return f"indexer_{self.compress_ratio}"

    @property
    def head_size(self) -> int:
        """Bytes of one entry, 132 for 128 values; an element is one byte."""
        return indexer_entry_bytes(self.index_head_dim)

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of an entry divided by the tokens that it covers, rounded up."""
        return cdiv(self.head_size, self.compress_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorStateLayer(LayerSpec):
    """DeepSeek-V4: fp32 states of the last tokens, from which the next entry is compressed.

    block_size: tokens per block, which no engine setting changes. of_indexer: it feeds an
    indexer's cache, else the latent one. Source: spec/layout.md 2.3 and 15.6.
    """

    head_size: int
    sliding_window: int
    block_size: int
    compress_ratio: int
    of_indexer: bool = False
    indexes_kv_by_block_stride: ClassVar[bool] = False
    dtype_bytes: ClassVar[int] = _FP32_BYTES

    @property
    def kind(self) -> str:
        """``compressor_state_4``, ``compressor_state_128`` or ``indexer_compressor_state``."""
        if self.of_indexer:
            return "indexer_compressor_state"
        return f"compressor_state_{self.compress_ratio}"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's state; ``dtype_bytes`` does not matter."""
        return self.head_size * self.dtype_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenStateLayer(LayerSpec):
    """Hidden states of some target layers, kept per token to be extracted.

    One vector of ``num_heads * head_size`` elements of the model's dtype.
    Source: spec/layout.md 6.6.
    """

    head_size: int
    num_heads: int
    indexes_kv_by_block_stride: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """``hidden_state``."""
        return "hidden_state"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's states."""
        return self.num_heads * self.head_size * dtype_bytes


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of a recurrent state.

    role chooses the setting that gives its dtype: ``conv`` for mamba_cache_dtype, ``ssm`` for
    mamba_ssm_cache_dtype. dtype_bytes: element size where no setting changes it, else None.
    """

    role: str
    shape: tuple[int, ...]
    dtype_bytes: int | None = None

    def num_bytes(self, dtype_bytes_by_role: dict[str, int]) -> int:
        """Bytes of the tensor for one sequence."""
        return prod(self.shape) * (self.dtype_bytes or dtype_bytes_by_role[self.role])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer(LayerSpec):
    """A layer with a state of fixed size per sequence.

    flavour: mamba1, mamba2, gdn, kda, lightning, short_conv or rglru.
    """

    flavour: str
    tensors: tuple[StateTensor, ...]

    @property
    def kind(self) -> str:
        """The flavour, such as ``mamba1``."""
        return self.flavour

    def state_bytes(self, dtype_bytes_by_role: dict[str, int]) -> int:
        """Bytes of the state of one sequence."""
        return sum(tensor.num_bytes(dtype_bytes_by_role) for tensor in self.tensors)
