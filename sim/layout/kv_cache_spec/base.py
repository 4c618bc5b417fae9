"""What every kind of cache has in common, and the limits that its maximum depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The engine settings that the per-request maximum of a spec depends on.

    max_model_len, max_num_batched_tokens, max_num_encoder_input_tokens in tokens;
    batches_in_flight is the number of batches counted into the bound of a window (1 in vLLM
    0.25.1). The two context-parallel sizes are numbers of ranks that share a sequence.
    """

    max_model_len: int
    max_num_batched_tokens: int
    mamba_cache_mode: str = "none"
    batches_in_flight: int = 1
    max_num_encoder_input_tokens: int = 0
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1

    @property
    def context_parallel_size(self) -> int:
        """Ranks among which the tokens of one sequence are dealt out."""
        return self.decode_context_parallel_size * self.prefill_context_parallel_size

    @property
    def tokens_in_flight(self) -> int:
        """Tokens of the batches that a window's bound counts in."""
        return self.batches_in_flight * self.max_num_batched_tokens


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
        """Bytes that hold content in one page, scales included."""
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
