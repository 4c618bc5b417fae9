"""Attention to the last tokens only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.errors import ConfigError
from sim.layout.kv_cache_spec.attention import KeyValueSpec
from sim.layout.kv_cache_spec.base import KVCacheSpec, MemoryLimits
from sim.layout.kv_cache_spec.quantisation import QuantMode
from sim.units import cdiv

NO_CONTEXT_PARALLEL = "DCP not support sliding window."


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(KeyValueSpec):
    """The last ``sliding_window`` tokens are read. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "sliding_window"

    sliding_window: int

    @property
    def data_bytes(self) -> int:
        """Bytes of keys and values; four-bit integers are not packed here, as in the engine."""
        if self.quant_mode is not QuantMode.INT4_PER_TOKEN_HEAD:
            return super().data_bytes
        width = self.head_size + (self.head_size_v or 0)
        return self.block_size * self.num_kv_heads * width * self.dtype_bytes

    def max_admission_blocks(self, limits: MemoryLimits) -> int:
        """Blocks that one request can hold at once, one more for a window that straddles.

        Raises ConfigError, in the engine's words, where decoding splits the context.
        """
        if limits.decode_context_parallel_size != 1:
            size = limits.decode_context_parallel_size
            key = "decode_context_parallel_size"
            raise ConfigError.one(key, size, NO_CONTEXT_PARALLEL)
        reach = self.sliding_window - 1 + limits.tokens_in_flight
        return cdiv(min(reach, limits.max_model_len), self.block_size) + 1

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Blocks of a window, of the tokens in flight, and one more."""
        return self.max_admission_blocks(limits) * self.page_size_bytes

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Windows of the same length, latent ones too."""
        return isinstance(other, SlidingWindowSpec) and other.sliding_window == self.sliding_window
