"""Attention backends: the block sizes that their kernels take, and how they address pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch

from sim.errors import ConfigError
from sim.models.model_config import (
    CompressedIndexerLayer,
    CompressedMLALayer,
    CompressorStateLayer,
    IndexerLayer,
    LayerSpec,
    MLALayer,
    ModelConfig,
    SlidingMLALayer,
)
from sim.registry import Registry

DENSE, MLA, SPARSE_MLA, INDEXER, TURBOQUANT, V4 = (
    "dense", "mla", "sparse_mla", "indexer", "turboquant", "deepseek_v4",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttentionBackend:
    """One backend.

    family: what kind of layers it serves. sizes: block sizes listed one by one; multiple_of: any
    multiple of it too. preferred_size: the cache block size it asks for, where it names one.
    indexes_kv_by_block_stride: its pages can be padded. Source: spec/layout.md 3.1, 6.4, 15.3.
    """

    name: str
    family: str
    sizes: tuple[int, ...] = ()
    multiple_of: int | None = None
    preferred_size: int | None = None
    indexes_kv_by_block_stride: bool = True

    @property
    def smallest_size(self) -> int:
        """The smallest block size of all."""
        return min((*self.sizes, *([self.multiple_of] if self.multiple_of else [])))

    @property
    def listed_sizes(self) -> tuple[int, ...]:
        """Sizes listed one by one, else the base of the multiples."""
        return tuple(sorted(self.sizes)) or (self.smallest_size,)

    def supports(self, block_size: int) -> bool:
        """Return whether a kernel takes blocks of this size."""
        return block_size in self.sizes or (
            self.multiple_of is not None and block_size % self.multiple_of == 0
        )

    def preferred(self, default: int) -> int:
        """Return the cache block size where the user names none. Source: spec/layout.md 3.1."""
        if self.preferred_size is not None:
            return self.preferred_size
        bases = (*self.sizes, *([self.multiple_of] if self.multiple_of else []))
        fits = any(default % size == 0 for size in bases)
        return default if fits else self.smallest_size


def _table(*backends: AttentionBackend) -> dict[str, AttentionBackend]:
    return {backend.name: backend for backend in backends}


# The first of a family is its default.
ATTENTION_BACKENDS: Registry[AttentionBackend] = Registry(
    "attention_backend",
    _table(
        AttentionBackend("FLASH_ATTN", DENSE, multiple_of=16),
        AttentionBackend("FLASHINFER", DENSE, (16, 32, 64)),
        AttentionBackend("TRITON_ATTN", DENSE, multiple_of=16),
        AttentionBackend("FLEX_ATTENTION", DENSE, multiple_of=16),
        AttentionBackend("ROCM_ATTN", DENSE, multiple_of=16, indexes_kv_by_block_stride=False),
        AttentionBackend("CPU_ATTN", DENSE, multiple_of=16, indexes_kv_by_block_stride=False),
        AttentionBackend("FLASHMLA", MLA, (64,)),
        AttentionBackend("FLASH_ATTN_MLA", MLA, multiple_of=16),
        AttentionBackend("TRITON_MLA", MLA, multiple_of=16),
        AttentionBackend("FLASHINFER_MLA", MLA, (32, 64)),
        AttentionBackend("TOKENSPEED_MLA", MLA, (32, 64)),
        AttentionBackend("CUTLASS_MLA", MLA, (128,)),
        AttentionBackend("FLASHMLA_SPARSE", SPARSE_MLA, (64,), indexes_kv_by_block_stride=False),
        AttentionBackend(
            "FLASH_ATTN_MLA_SPARSE", SPARSE_MLA, (64,), indexes_kv_by_block_stride=False
        ),
        AttentionBackend(
            "FLASHINFER_MLA_SPARSE", SPARSE_MLA, (32, 64), indexes_kv_by_block_stride=False
        ),
        AttentionBackend("DEEPSEEK_V32_INDEXER", INDEXER, (64,), indexes_kv_by_block_stride=False),
        AttentionBackend(
            "TURBOQUANT", TURBOQUANT, (16, 32, 64, 128), indexes_kv_by_block_stride=False
        ),
        AttentionBackend(
            "DEEPSEEK_SPARSE_SWA",
            V4,
            multiple_of=64,
            preferred_size=256,
            indexes_kv_by_block_stride=False,
        ),
        AttentionBackend("DEEPSEEK_V4_MLA", V4, (256,), indexes_kv_by_block_stride=False),
        AttentionBackend(
            "DEEPSEEK_V4_COMPRESSOR", V4, multiple_of=1, indexes_kv_by_block_stride=False
        ),
    ),
)


def default_backend(family: str) -> AttentionBackend:
    """Return the backend that a family of layers gets where the user names none."""
    return next(b for b in ATTENTION_BACKENDS.values() if b.family == family)


@singledispatch
def _default_for(layer: LayerSpec) -> AttentionBackend:
    return default_backend(DENSE)


@_default_for.register
def _(layer: MLALayer) -> AttentionBackend:
    return default_backend(SPARSE_MLA if layer.is_sparse else MLA)


@_default_for.register
def _(layer: IndexerLayer) -> AttentionBackend:
    return default_backend(INDEXER)


@_default_for.register
def _(layer: SlidingMLALayer) -> AttentionBackend:
    return ATTENTION_BACKENDS["DEEPSEEK_SPARSE_SWA"]


@_default_for.register(CompressedMLALayer)
@_default_for.register(CompressedIndexerLayer)
def _(layer: LayerSpec) -> AttentionBackend:
    return ATTENTION_BACKENDS["DEEPSEEK_V4_MLA"]


@_default_for.register
def _(layer: CompressorStateLayer) -> AttentionBackend:
    return ATTENTION_BACKENDS["DEEPSEEK_V4_COMPRESSOR"]


def backend_of(layer: LayerSpec, chosen: str | None) -> AttentionBackend:
    """Return the backend of an attention layer: the chosen one if it serves such layers."""
    default = _default_for(layer)
    if chosen is None or ATTENTION_BACKENDS[chosen].family != default.family:
        return default
    return ATTENTION_BACKENDS[chosen]


def check_backend(model: ModelConfig, attention: Iterable[LayerSpec], chosen: str | None) -> None:
    """Raise a ConfigError for a backend that is unknown or serves none of the layers."""
    if chosen is None:
        return
    families = {_default_for(layer).family for layer in attention}
    if ATTENTION_BACKENDS[chosen].family in families:
        return
    fitting = [b.name for b in ATTENTION_BACKENDS.values() if b.family in families]
    allowed = f"for {model.name}: {', '.join(fitting) or 'none, it has no attention'}"
    raise ConfigError.one("attention_backend", chosen, allowed)


def kernel_block_size(backends: Sequence[AttentionBackend], block_size: int) -> int:
    """Return the block size that kernels see: the block itself, or a listed part of it.

    Raises ConfigError, in the engine's words, where no size suits all backends.
    Source: spec/layout.md 11.
    """
    if all(backend.supports(block_size) for backend in backends):
        return block_size
    listed = sorted({size for backend in backends for size in backend.sizes}, reverse=True)
    for size in listed:
        if block_size % size == 0 and all(backend.supports(size) for backend in backends):
            return size
    names = ", ".join(dict.fromkeys(backend.name for backend in backends))
    bases = ", ".join(dict.fromkeys(str(backend.smallest_size) for backend in backends))
    allowed = f"a multiple of {bases} for {names} (No common block size for {block_size}. )"
    raise ConfigError.one("cache.block_size", block_size, allowed)
