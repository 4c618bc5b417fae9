"""Attention caches: what they share, and the kinds whose values are shaped like their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.layout.kv_cache_spec.base import KVCacheSpec, MemoryLimits
from sim.layout.kv_cache_spec.quantisation import SCALE_BYTES, QuantMode, stored_elements
from sim.units import cdiv


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """Keys and values of one attention layer on one rank.

    num_kv_heads and head sizes are per rank; dtype_bytes is the stored element size.
    indexes_kv_by_block_stride: the backend can address pages that are padded.
    """

    num_kv_heads: int
    head_size: int
    dtype_bytes: int
    quant_mode: QuantMode = QuantMode.NONE
    page_size_padded: int | None = None
    indexes_kv_by_block_stride: bool = True

    @property
    def data_bytes(self) -> int:
        """Bytes of keys and values in one page, without scales."""
        vector = stored_elements(self.head_size, self.quant_mode)
        return 2 * self.block_size * self.num_kv_heads * vector * self.dtype_bytes

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of keys, values and their scales in one page."""
        if not self.quant_mode.has_scale_per_token_head:
            return self.data_bytes
        return self.data_bytes + 2 * self.block_size * self.num_kv_heads * SCALE_BYTES

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one page, the padded size where one is set."""
        return self.page_size_padded or self.real_page_size_bytes


@dataclass(frozen=True, kw_only=True)
class KeyValueSpec(AttentionSpec):
    """Attention whose values may have another head size than its keys (None means the same)."""

    head_size_v: int | None = None

    def __post_init__(self) -> None:
        if self.head_size_v is None:
            object.__setattr__(self, "head_size_v", self.head_size)

    @property
    def data_bytes(self) -> int:
        """Bytes of keys and values in one page, without scales."""
        sizes = (self.head_size, self.head_size_v or 0)
        width = sum(stored_elements(size, self.quant_mode) for size in sizes)
        return self.block_size * self.num_kv_heads * width * self.dtype_bytes


@dataclass(frozen=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """Tokens back to the start of the current chunk are read. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "chunked_local_attention"

    attention_chunk_size: int

    def max_admission_blocks(self, limits: MemoryLimits) -> int:
        """Blocks of a chunk and of the tokens in flight; no straddling block is counted."""
        reach = self.attention_chunk_size + limits.tokens_in_flight
        return cdiv(min(reach, limits.max_model_len), self.block_size)

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """The pages of that many blocks."""
        return self.max_admission_blocks(limits) * self.page_size_bytes

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Chunks of the same length."""
        return (
            isinstance(other, ChunkedLocalAttentionSpec)
            and other.attention_chunk_size == self.attention_chunk_size
        )


@dataclass(frozen=True, kw_only=True)
class CrossAttentionSpec(AttentionSpec):
    """Keys and values of the encoder's output. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "cross_attention"

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Blocks of the longest encoder input."""
        return cdiv(limits.max_num_encoder_input_tokens, self.block_size) * self.page_size_bytes

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Any cross attention."""
        return isinstance(other, CrossAttentionSpec)


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyAttentionSpec(AttentionSpec):
    """Attention that keeps nothing between steps; planning never sees it."""

    kind: ClassVar[str] = "encoder_only_attention"

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Nothing."""
        return 0
