"""Groups of a world as our specs: one line per kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from tests.differential.world import World

Group = dict[str, Any]


def _heads(group: Group) -> dict[str, Any]:
    return {
        "block_size": group["block_size"],
        "num_kv_heads": 1,
        "head_size": group.get("head_size", 8),
        "dtype_bytes": 2,
    }


KINDS: dict[str, Callable[[Group], KVCacheSpec]] = {
    "full": lambda g: FullAttentionSpec(**_heads(g)),
    "tq_full": lambda g: TQFullAttentionSpec(**_heads(g), tq_slot_size=16),
    "mla": lambda g: MLAAttentionSpec(**_heads(g)),
    "hidden_state": lambda g: HiddenStateCacheSpec(**_heads(g)),
    "rswa": lambda g: RSWASpec(**_heads(g), rswa_window=g["window"]),
    "sink": lambda g: SinkFullAttentionSpec(**_heads(g), sink_len=g["block_size"]),
    "sliding": lambda g: SlidingWindowSpec(**_heads(g), sliding_window=g["window"]),
    "sliding_mla": lambda g: SlidingWindowMLASpec(**_heads(g), sliding_window=g["window"]),
    "chunked": lambda g: ChunkedLocalAttentionSpec(**_heads(g), attention_chunk_size=g["chunk"]),
    "cross": lambda g: CrossAttentionSpec(**_heads(g)),
    "mamba": lambda g: MambaSpec(
        block_size=g["block_size"],
        shapes=((8,),),
        dtype_bytes=(2,),
        mamba_cache_mode=g["mode"],
        num_speculative_blocks=g.get("speculative", 0),
    ),
}
FULL_KINDS = {"full", "tq_full", "mla", "hidden_state", "rswa"}


def spec_of(group: Group) -> KVCacheSpec:
    return KINDS[group["kind"]](group)


def kv_cache_config(world: World) -> KVCacheConfig:
    groups = tuple(
        KVCacheGroupSpec((f"layer.{i}",), spec_of(group), bool(group.get("eagle")))
        for i, group in enumerate(world.groups)
    )
    return KVCacheConfig(world.num_blocks, (), groups)
