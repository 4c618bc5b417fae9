"""Recurrent states: a page of fixed size per sequence."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from sim.layout.kv_cache_spec.base import KVCacheSpec, MemoryLimits
from sim.units import cdiv


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
