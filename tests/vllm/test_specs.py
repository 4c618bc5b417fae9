"""Every kind of cache becomes vLLM's, with the same page."""

from __future__ import annotations

from typing import Any

import pytest

from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    QuantMode,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
    UniformTypeKVCacheSpecs,
)
from sim.vllm import is_installed, kv_cache_config
from sim.vllm.specs import kv_cache_spec

pytestmark = pytest.mark.skipif(not is_installed(), reason="vLLM 0.25.1 is not installed")

A: dict[str, Any] = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype_bytes": 2}
SPECS: list[KVCacheSpec] = [
    FullAttentionSpec(**A),
    FullAttentionSpec(**A, head_size_v=32, page_size_padded=16384),
    FullAttentionSpec(**A | {"dtype_bytes": 1}, quant_mode=QuantMode.INT8_PER_TOKEN_HEAD),
    TQFullAttentionSpec(**A, tq_slot_size=48),
    SlidingWindowSpec(**A, sliding_window=128),
    ChunkedLocalAttentionSpec(**A, attention_chunk_size=64),
    CrossAttentionSpec(**A),
    RSWASpec(**A, rswa_window=64),
    SinkFullAttentionSpec(**A, sink_len=16),
    MLAAttentionSpec(**A | {"num_kv_heads": 1, "head_size": 576}),
    MLAAttentionSpec(**A | {"num_kv_heads": 1}, alignment=4096, cache_dtype_str="fp8_ds_mla"),
    HiddenStateCacheSpec(**A),
    SlidingWindowMLASpec(**A | {"num_kv_heads": 1}, sliding_window=64),
    MambaSpec(block_size=64, shapes=((3, 8), (4, 5)), dtype_bytes=(2, 4), mamba_type="gdn"),
    MambaSpec(
        block_size=64, shapes=((8,),), dtype_bytes=(4,), mamba_cache_mode="align",
        num_speculative_blocks=2, page_size_padded=128, mamba_type="mamba2",
    ),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_a_spec_keeps_its_kind_its_block_and_its_page(spec: KVCacheSpec) -> None:
    theirs = kv_cache_spec(spec)
    assert type(theirs).__name__ == type(spec).__name__
    assert theirs.block_size == spec.block_size
    assert theirs.page_size_bytes == spec.page_size_bytes


@pytest.mark.parametrize(
    "name",
    ["sliding_window", "attention_chunk_size", "rswa_window", "sink_len", "mamba_cache_mode",
     "num_speculative_blocks", "tq_slot_size"],
)  # fmt: skip
def test_what_decides_about_blocks_is_the_same(name: str) -> None:
    having = [spec for spec in SPECS if getattr(spec, name, None) is not None]
    assert having
    for spec in having:
        assert getattr(kv_cache_spec(spec), name) == getattr(spec, name)


def test_specs_are_equal_there_where_they_are_here() -> None:
    theirs = [kv_cache_spec(spec) for spec in SPECS]
    for i, spec in enumerate(SPECS):
        assert [theirs[i] == other for other in theirs] == [spec == other for other in SPECS]


def test_a_pool_keeps_its_groups_and_flags() -> None:
    bundle = UniformTypeKVCacheSpecs.of({"a": SPECS[0], "b": SPECS[1]})
    groups = (
        KVCacheGroupSpec(("x", "y"), SPECS[0]),
        KVCacheGroupSpec(("z",), SPECS[4], is_eagle_group=True),
        KVCacheGroupSpec(("a", "b"), bundle),
    )
    theirs = kv_cache_config(KVCacheConfig(77, (), groups))
    assert theirs.num_blocks == 77
    assert [g.layer_names for g in theirs.kv_cache_groups] == [["x", "y"], ["z"], ["a", "b"]]
    assert [g.is_eagle_group for g in theirs.kv_cache_groups] == [False, True, False]
    assert theirs.kv_cache_groups[2].kv_cache_spec.page_size_bytes == bundle.page_size_bytes
