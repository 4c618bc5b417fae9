"""What one layer keeps per token or per sequence: the spec kinds."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The engine settings that the per-request maximum of a spec depends on.

    max_model_len, max_num_batched_tokens in tokens; batches_in_flight is the number of batches
    counted into the bound of a window (1 in vLLM 0.25.1).
    """

    max_model_len: int
    max_num_batched_tokens: int
    mamba_cache_mode: str = "none"
    batches_in_flight: int = 1


@dataclass(frozen=True, kw_only=True)
class KVCacheSpec:
    """Immutable description of one layer's cache; equal means same class and same fields."""

    block_size: int

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes that hold content in one page."""
        raise NotImplementedError

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one page: one block's share of one layer, padding included."""
        return self.real_page_size_bytes

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Most bytes that one request of the maximum length can hold in this layer."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """Keys and values of one attention layer on one rank.

    num_kv_heads and head sizes are per rank; dtype_bytes is the stored element size.
    """

    num_kv_heads: int
    head_size: int
    dtype_bytes: int
    page_size_padded: int | None = None
    indexes_kv_by_block_stride: bool = True

    @property
    def real_page_size_bytes(self) -> int:
        return 2 * self.block_size * self.num_kv_heads * self.head_size * self.dtype_bytes

    @property
    def page_size_bytes(self) -> int:
        return self.page_size_padded or self.real_page_size_bytes


@dataclass(frozen=True, kw_only=True)
class _KeyValueSpec(AttentionSpec):
    """Attention whose values may have another head size than its keys (None means the same)."""

    head_size_v: int | None = None

    def __post_init__(self) -> None:
        if self.head_size_v is None:
            object.__setattr__(self, "head_size_v", self.head_size)

    @property
    def real_page_size_bytes(self) -> int:
        width = self.head_size + (self.head_size_v or 0)
        return self.block_size * self.num_kv_heads * width * self.dtype_bytes


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(_KeyValueSpec):
    """Every token is kept. Source: spec/layout.md 2.2."""

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        return cdiv(limits.max_model_len, self.block_size) * self.page_size_bytes


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(_KeyValueSpec):
    """The last ``sliding_window`` tokens are read. Source: spec/layout.md 2.2."""

    sliding_window: int

    def max_admission_blocks(self, limits: MemoryLimits) -> int:
        """Blocks that one request can hold at once, one more for a window that straddles."""
        reach = self.sliding_window - 1 + limits.batches_in_flight * limits.max_num_batched_tokens
        return cdiv(min(reach, limits.max_model_len), self.block_size) + 1

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        return self.max_admission_blocks(limits) * self.page_size_bytes


@dataclass(frozen=True, kw_only=True)
class MambaSpec(KVCacheSpec):
    """The recurrent state of one layer; its page does not depend on the block size.

    shapes: the state's tensors; dtype_bytes: element size of each. mamba_type names the flavour.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype_bytes: tuple[int, ...]
    mamba_type: str = "mamba1"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    page_size_padded: int | None = None

    @property
    def real_page_size_bytes(self) -> int:
        return sum(prod(s) * size for s, size in zip(self.shapes, self.dtype_bytes, strict=True))

    @property
    def page_size_bytes(self) -> int:
        return self.page_size_padded or self.real_page_size_bytes

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        blocks = {"none": 1, "align": 2}[limits.mamba_cache_mode] + self.num_speculative_blocks
        return blocks * self.page_size_bytes
