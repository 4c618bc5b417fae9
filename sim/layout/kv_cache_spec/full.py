"""Attention that keeps every token, and the kinds that the engine plans like it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from sim.errors import ConfigError
from sim.layout.kv_cache_spec.attention import KeyValueSpec
from sim.layout.kv_cache_spec.base import KVCacheSpec, MemoryLimits
from sim.units import cdiv

ONE_WINDOW = "All attention layers in the same KV cache group must have the same window size."


@dataclass(frozen=True, kw_only=True)
class FullFamilySpec(KeyValueSpec):
    """Every token is kept: what full attention, latent attention and their relatives share.

    sliding_window and attention_chunk_size: recorded where such a layer is kept whole because the
    hybrid manager is off; they change what is read, not what is kept.
    Source: spec/layout.md 2.2, 2.4, 5.2.
    """

    is_latent: ClassVar[bool] = False

    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    non_causal: bool = False

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """Blocks of the whole sequence, or of this rank's share of it."""
        tokens = cdiv(limits.max_model_len, limits.context_parallel_size)
        return cdiv(tokens, self.block_size) * self.page_size_bytes

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """One spec with the first's fields, or None.

        Window and chunk are the only ones that occur, and at most one of both kinds. The value
        head size is not compared: the first spec's counts.

        Raises
        ------
        ConfigError
            Two different windows, or two different chunks, in the engine's words.

        Source: spec/layout.md 2.4.
        """
        family = [o for o in others if isinstance(o, FullFamilySpec) and not o.is_latent]
        if len(family) != len(others):
            return None
        family.append(self)
        window = _the_only(spec.sliding_window for spec in family)
        chunk = _the_only(spec.attention_chunk_size for spec in family)
        uneven = any(spec._compared() != self._compared() for spec in family)
        if uneven or (window is not None and chunk is not None):
            return None
        non_causal = any(spec.non_causal for spec in family)
        return replace(
            self, sliding_window=window, attention_chunk_size=chunk, non_causal=non_causal
        )

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Any of the family."""
        return isinstance(other, FullFamilySpec)

    def _compared(self) -> tuple[object, ...]:
        return (
            self.block_size,
            self.num_kv_heads,
            self.head_size,
            self.dtype_bytes,
            self.quant_mode,
            self.page_size_padded,
            self.indexes_kv_by_block_stride,
        )


def _the_only(values: Iterable[int | None]) -> int | None:
    distinct = {value for value in values if value is not None}
    if len(distinct) > 1:
        raise ConfigError.one("model", f"windows of {sorted(distinct)} tokens", ONE_WINDOW)
    return distinct.pop() if distinct else None


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(FullFamilySpec):
    """Plain full attention."""

    kind: ClassVar[str] = "full_attention"


@dataclass(frozen=True, kw_only=True)
class TQFullAttentionSpec(FullAttentionSpec):
    """Full attention in TurboQuant slots: ``tq_slot_size`` bytes per token and head."""

    tq_slot_size: int = 0

    @property
    def data_bytes(self) -> int:
        """Bytes of the slots, or as full attention where no slot size is set."""
        if not self.tq_slot_size:
            return super().data_bytes
        return self.block_size * self.num_kv_heads * self.tq_slot_size

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """As full attention first, then slots of the same size (spec/layout.md 15.19)."""
        merged = super().merged_with(others)
        same = all(getattr(o, "tq_slot_size", None) == self.tq_slot_size for o in others)
        return merged if same else None


@dataclass(frozen=True, kw_only=True)
class RSWASpec(FullFamilySpec):
    """A reference window: sized like full attention on purpose, read through ``rswa_window``."""

    kind: ClassVar[str] = "full_attention"

    rswa_window: int

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """As full attention, if all have the same reference window."""
        same = all(isinstance(o, RSWASpec) and o.rswa_window == self.rswa_window for o in others)
        return super().merged_with(others) if same else None


@dataclass(frozen=True, kw_only=True)
class SinkFullAttentionSpec(FullFamilySpec):
    """Full attention behind ``sink_len`` tokens that every request reads; they are not counted."""

    kind: ClassVar[str] = "sink_full_attention"

    sink_len: int
