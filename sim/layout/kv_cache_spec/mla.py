"""Latent attention: one vector per token instead of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from sim.errors import ConfigError
from sim.layout.kv_cache_spec.attention import AttentionSpec
from sim.layout.kv_cache_spec.base import KVCacheSpec
from sim.layout.kv_cache_spec.full import FullFamilySpec
from sim.layout.kv_cache_spec.quantisation import stored_elements
from sim.layout.kv_cache_spec.sliding_window import SlidingWindowSpec
from sim.units import cdiv

DS_MLA = "fp8_ds_mla"
DEEPSEEK_V4 = "deepseek_v4"
DS_MLA_ENTRY_BYTES = 656  # DeepSeek-V3.2: latent in fp8 with scales, rope part in bf16
V4_ENTRY_BYTES = 584


@dataclass(frozen=True, kw_only=True)
class _LatentFields(AttentionSpec):
    """The fields that both latent kinds have.

    cache_dtype_str: the cache's dtype as the user named it, None for side caches. compress_ratio:
    tokens per entry. alignment: pages are padded to a multiple of it, in bytes.
    """

    cache_dtype_str: str | None = None
    alignment: int | None = None
    compress_ratio: int = 1
    model_version: str | None = None

    @property
    def storage_block_size(self) -> int:
        """Entries of one page."""
        return self.block_size // self.compress_ratio

    @property
    def is_v4_entry(self) -> bool:
        """True for DeepSeek-V4's own quantised entry."""
        return self.model_version == DEEPSEEK_V4 and self.cache_dtype_str == DS_MLA

    @property
    def latent_bytes(self) -> int:
        """Bytes of one page's vectors."""
        vector = stored_elements(self.head_size, self.quant_mode)
        return self.storage_block_size * self.num_kv_heads * vector * self.dtype_bytes

    def align_page(self) -> None:
        """Pad the page to the alignment; that overrides a padded size that was passed in."""
        if self.alignment is None:
            return
        real = self.real_page_size_bytes
        aligned = cdiv(real, self.alignment) * self.alignment
        if aligned != real:
            object.__setattr__(self, "page_size_padded", aligned)

    def padded_to(self, page_size_bytes: int) -> Self:
        """Return a copy with this page, on which the alignment does not run again."""
        padded = copy(self)
        object.__setattr__(padded, "page_size_padded", page_size_bytes)
        return padded


@dataclass(frozen=True, kw_only=True)
class MLAAttentionSpec(_LatentFields, FullFamilySpec):
    """One latent vector per token, or per ``compress_ratio`` tokens. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "mla_attention"
    is_latent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.align_page()

    @property
    def data_bytes(self) -> int:
        """Bytes of one page's entries."""
        if self.is_v4_entry:
            return self.storage_block_size * V4_ENTRY_BYTES
        if self.cache_dtype_str == DS_MLA:
            return self.block_size * DS_MLA_ENTRY_BYTES
        return self.latent_bytes

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """The first, without its alignment; sizes and dtypes are not compared, as in the engine."""
        same = all(isinstance(o, MLAAttentionSpec) and o._named() == self._named() for o in others)
        return replace(self, alignment=None) if same else None

    def _named(self) -> tuple[object, ...]:
        return (
            self.cache_dtype_str,
            self.compress_ratio,
            self.model_version,
            self.indexes_kv_by_block_stride,
        )


@dataclass(frozen=True, kw_only=True)
class HiddenStateCacheSpec(MLAAttentionSpec):
    """Hidden states kept per token, to be extracted; stored as latent attention is."""


@dataclass(frozen=True, kw_only=True)
class SlidingWindowMLASpec(_LatentFields, SlidingWindowSpec):
    """Latent vectors or compressor states of the last tokens. Source: spec/layout.md 2.2."""

    kind: ClassVar[str] = "sliding_window_mla"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model_version not in (None, DEEPSEEK_V4):
            raise ConfigError.one("model_version", self.model_version, f"none, or {DEEPSEEK_V4}")
        self.align_page()

    @property
    def data_bytes(self) -> int:
        """Bytes of one page's entries."""
        if self.is_v4_entry:
            return self.storage_block_size * V4_ENTRY_BYTES
        return self.latent_bytes

    def merged_with(self, others: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
        """The first; sizes and dtypes are not compared, as in the engine."""
        same = all(
            isinstance(o, SlidingWindowMLASpec) and o._named() == self._named() for o in others
        )
        return self if same else None

    def accepts_type(self, other: KVCacheSpec) -> bool:
        """Latent windows of the same length only."""
        return isinstance(other, SlidingWindowMLASpec) and super().accepts_type(other)

    def _named(self) -> tuple[object, ...]:
        return (
            self.cache_dtype_str,
            self.compress_ratio,
            self.model_version,
            self.sliding_window,
            self.indexes_kv_by_block_stride,
        )
