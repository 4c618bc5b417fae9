"""Specs of the rarer kinds at their smallest, and a native manager for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

from sim.core.integrity import check_integrity
from sim.core.kv_cache_manager import KVCacheManager
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    TQFullAttentionSpec,
)
from sim.request import Request
from tests.helpers import allocate, make_manager, num_held

SIM = SimpleNamespace(name="sim", KVCacheManager=KVCacheManager)
SHAPE = {"num_kv_heads": 1, "head_size": 8, "dtype_bytes": 2}


def chunked(block_size: int, chunk: int) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(block_size=block_size, attention_chunk_size=chunk, **SHAPE)


def cross(block_size: int) -> CrossAttentionSpec:
    return CrossAttentionSpec(block_size=block_size, **SHAPE)


def rswa(block_size: int, window: int) -> RSWASpec:
    return RSWASpec(block_size=block_size, rswa_window=window, **SHAPE)


def sink(block_size: int, sink_len: int) -> SinkFullAttentionSpec:
    return SinkFullAttentionSpec(block_size=block_size, sink_len=sink_len, **SHAPE)


def latent(block_size: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=block_size, **SHAPE)


def hidden(block_size: int) -> HiddenStateCacheSpec:
    return HiddenStateCacheSpec(block_size=block_size, **SHAPE)


def turbo(block_size: int) -> TQFullAttentionSpec:
    return TQFullAttentionSpec(block_size=block_size, tq_slot_size=8, **SHAPE)


def latent_window(block_size: int, window: int) -> SlidingWindowMLASpec:
    return SlidingWindowMLASpec(block_size=block_size, sliding_window=window, **SHAPE)


def native(specs: Sequence[KVCacheSpec], *, num_blocks: int, **settings) -> KVCacheManager:
    return make_manager(SIM, specs, num_blocks=num_blocks, **settings)


def rejected(request: Request, num_drafts: int) -> None:
    """Take back drafts that were allocated for."""
    request.num_computed_tokens -= num_drafts


def held_while_decoding(
    manager: KVCacheManager, request: Request, num_tokens: int
) -> Iterable[tuple[int, int]]:
    """Decode token by token; yield (computed before, blocks held) after each allocation."""
    while request.num_tokens < num_tokens:
        computed = request.num_computed_tokens
        request.num_tokens += 1
        assert allocate(manager, request, 1) is not None
        check_integrity(manager)
        yield computed, num_held(manager, request)
