"""What one layer keeps per token or per sequence: the spec kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

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
    """Immutable description of one layer's cache; equal means same class and same fields.

    ``kind`` is the name that the engine reports in events and metadata. A new kind is one
    dataclass: its page, its per-request maximum, and how specs of it merge.
    Source: spec/layout.md 2.2, 2.4.
    """

    kind: ClassVar[str]

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

    def max_blocks(self, limits: MemoryLimits) -> int:
        """Most blocks that one request of the maximum length can hold in this layer."""
        return cdiv(self.max_memory_usage_bytes(limits), self.page_size_bytes)

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """One spec that stands for all, or None: here all must be equal."""
        return self if all(other == self for other in others) else None

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """True if the other could share this spec's block table, whatever its page."""
        return type(other) is type(self)


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """Keys and values of one attention layer on one rank.

    num_kv_heads and head sizes are per rank; dtype_bytes is the stored element size.
    indexes_kv_by_block_stride: the backend can address pages that are padded.
    """

    num_kv_heads: int
    head_size: int
    dtype_bytes: int
    page_size_padded: int | None = None
    indexes_kv_by_block_stride: bool = True

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes that hold content in one page."""
        return 2 * self.block_size * self.num_kv_heads * self.head_size * self.dtype_bytes

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one page, the padded size where one is set."""
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
        """Bytes of keys and values in one page."""
        width = self.head_size + (self.head_size_v or 0)
        return self.block_size * self.num_kv_heads * width * self.dtype_bytes


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(_KeyValueSpec):
    """Every token is kept. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "full_attention"

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Blocks of the whole sequence."""
        return cdiv(limits.max_model_len, self.block_size) * self.page_size_bytes

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """The value head size is not compared: the first spec's counts (spec/layout.md 2.4)."""
        same = all(
            isinstance(other, FullAttentionSpec) and other._shape() == self._shape()
            for other in others
        )
        return self if same else None

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Any full attention."""
        return isinstance(other, FullAttentionSpec)

    def _shape(self) -> tuple[int | bool | None, ...]:
        return (
            self.block_size,
            self.num_kv_heads,
            self.head_size,
            self.dtype_bytes,
            self.page_size_padded,
            self.indexes_kv_by_block_stride,
        )


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(_KeyValueSpec):
    """The last ``sliding_window`` tokens are read. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "sliding_window"

    sliding_window: int

    def max_admission_blocks(self, limits: MemoryLimits) -> int:
        """Blocks that one request can hold at once, one more for a window that straddles."""
        reach = self.sliding_window - 1 + limits.batches_in_flight * limits.max_num_batched_tokens
        return cdiv(min(reach, limits.max_model_len), self.block_size) + 1

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Blocks of a window, of the tokens in flight, and one more."""
        return self.max_admission_blocks(limits) * self.page_size_bytes

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Windows of the same length."""
        return isinstance(other, SlidingWindowSpec) and other.sliding_window == self.sliding_window


@dataclass(frozen=True, kw_only=True)
class MambaSpec(KVCacheSpec):
    """The recurrent state of one layer; its page does not depend on the block size.

    shapes: the state's tensors; dtype_bytes: element size of each. mamba_type names the flavour.
    The per-request maximum goes by the engine's cache mode, not by the field.
    Source: spec/layout.md 2.2.
    """

    kind: ClassVar[str] = "mamba"

    shapes: tuple[tuple[int, ...], ...]
    dtype_bytes: tuple[int, ...]
    mamba_type: str = "mamba1"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    page_size_padded: int | None = None

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of the state's tensors."""
        return sum(prod(s) * size for s, size in zip(self.shapes, self.dtype_bytes, strict=True))

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one page, the padded size where one is set."""
        return self.page_size_padded or self.real_page_size_bytes

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """One state, two, or one per block, and those of speculation."""
        states = {
            "none": 1,
            "align": 2,
            "all": cdiv(limits.max_model_len, self.block_size),
        }[limits.mamba_cache_mode]
        return (states + self.num_speculative_blocks) * self.page_size_bytes

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """States with as many speculative blocks."""
        return (
            isinstance(other, MambaSpec)
            and other.num_speculative_blocks == self.num_speculative_blocks
        )
