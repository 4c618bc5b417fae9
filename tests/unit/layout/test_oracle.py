"""The small oracle set and edge cases that executed engine functions gave (layout.md 14, C)."""

import pytest

from sim.errors import ConfigError
from sim.layout.grouping import GROUPING_HEURISTICS
from sim.layout.groups import group_layers
from sim.layout.kv_cache_spec import QuantMode
from sim.layout.plan import plan_layout, plan_pool, prepare_layers
from sim.models import load_model
from sim.models.model_config import AttentionLayer
from tests.unit.layout.layouts import (
    GIB,
    full,
    hidden,
    limits,
    mamba,
    mla,
    plan,
    pool,
    settings,
    shape,
    sliding,
    stack,
    turboquant,
)

QWEN = "Qwen--Qwen3-Next-80B-A3B-Instruct"


def refused(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems[0].allowed


def groups_of(specs):
    return group_layers(specs, GROUPING_HEURISTICS["vllm"])


def test_one_odd_window_makes_groups_of_one_layer():
    specs = {
        "odd": sliding(sliding_window=512),
        **stack("S", sliding(), 51),
        **stack("F", full(), 10),
    }
    assert len(groups_of(specs)[0]) == 62
    assert "same window size" in refused(lambda: pool(specs, disable_hybrid_kv_cache_manager=True))


def test_dcp_does_not_support_windows_and_chunks_stop_later():
    text = refused(lambda: plan("openai--gpt-oss-20b", decode_context_parallel_size=2))
    assert text == "DCP not support sliding window."
    # the layout exists: 27306 blocks, 3 * 1024 + 4096 of them a request
    scout = load_model("meta-llama--Llama-4-Scout-17B-16E-Instruct")
    shared = settings(max_model_len=131072, decode_context_parallel_size=2)
    layers = prepare_layers(scout, shared)
    planned = plan_pool(layers.specs, layers.settings, layers.limits, 131072)
    assert planned.log_lines[-1].endswith("3.81x")
    text = refused(lambda: plan_layout(scout, shared))
    assert text.startswith("Hybrid KV cache groups with multiple block sizes do not support")


def draft(heads, size):
    return {
        "speculative_method": "eagle",
        "draft_layer": AttentionLayer(name="d", num_kv_heads=heads, head_size=size),
    }


def test_a_draft_of_twice_the_page_breaks_a_hybrid():
    text = refused(lambda: plan(QWEN, **draft(4, 256)))
    assert "cannot grow to the largest page" in text


def test_a_draft_of_half_the_page_gets_blocks_twice_as_long_and_groups_of_one():
    layout = plan(QWEN, **draft(1, 256))
    assert len(layout.groups) == 49
    assert layout.groups[-1].kv_cache_spec.block_size == 1088


def test_four_bit_integers_pad_full_pages_to_sliding_ones():
    mode = {"dtype_bytes": 1, "quant_mode": QuantMode.INT4_PER_TOKEN_HEAD}
    specs = {**stack("F", full(**mode), 4), **stack("S", sliding(**mode), 4)}
    planned = pool(specs, limits(32768), kv_cache_memory_bytes=4 * GIB)
    spec = planned.groups[0].kv_cache_spec
    assert (spec.real_page_size_bytes, spec.page_size_padded) == (17408, 33792)
    assert planned.workers[0].slots_per_block == 4
    assert f"{planned.capacity.concurrency:.2f}" == "12.10"


def test_turboquant_with_four_layers_left_out_is_one_bundle():
    specs = {
        **stack("a", full(), 2), **stack("b", turboquant(), 28), **stack("c", full(), 2),
    }  # fmt: skip
    assert pool(specs).workers[0].bytes_per_block == 28 * 25088 + 4 * 65536
    # and so from a model of 32 layers
    layout = plan("meta-llama--Llama-3.1-8B", kv_cache_dtype="turboquant_k8v4")
    assert layout.bytes_per_block == 964608
    assert shape(layout.groups) == [("full_attention", 32, 16)]


def test_a_draft_on_another_backend_splits_a_bucket():
    # the stride flag counts in equality (appendix C7)
    other = full(indexes_kv_by_block_stride=False)
    specs = {**stack("S", sliding(), 12), **stack("F", full(), 12), "draft.0": other}
    assert len(groups_of(specs)[0]) == 25


def test_pages_without_the_stride_flag_cannot_be_padded():
    # Gemma-4 with per-token-head fp8: 520 and 1032 bytes per token and head (real cases, B28)
    def layers(flag):
        mode = {
            "dtype_bytes": 1,
            "quant_mode": QuantMode.FP8_PER_TOKEN_HEAD,
            "indexes_kv_by_block_stride": flag,
        }
        window = sliding(num_kv_heads=16, head_size=256, **mode)
        whole = full(num_kv_heads=4, head_size=512, **mode)
        assert (window.page_size_bytes, whole.page_size_bytes) == (16 * 16 * 520, 16 * 4 * 1032)
        return {**stack("S", window, 50), **stack("F", whole, 10)}

    groups, _ = groups_of(layers(True))
    assert len(groups) == 6
    assert {g.kv_cache_spec.block_size for g in groups} == {16}
    assert groups[-1].kv_cache_spec.page_size_padded == 16 * 16 * 520
    assert "cannot be padded" in refused(lambda: groups_of(layers(False)))


@pytest.mark.parametrize(
    ("sizes", "num_groups"),
    [
        ((30, 10, 5, 1), 46),
        ((1, 12, 12, 12, 36), 73),
        ((30, 1), 31),
        ((13, 12), 2),
        ((19, 18), 2),
    ],
)
def test_odd_layers_ruin_the_group_size(sizes, num_groups):
    # real cases, B27; the bucket sizes are what counts
    specs = {}
    for idx, count in enumerate(sizes):
        spec = full() if not idx else sliding(sliding_window=idx)
        specs |= stack(f"k{idx}.", spec, count)
    assert len(groups_of(specs)[0]) == num_groups


# -- hidden states (spec/layout.md 6.6) ---------------------------------------------------------


def test_hidden_states_get_the_tokens_that_fit_the_common_page_and_a_group_each():
    specs = {
        "h": hidden(),
        **stack("m", mamba(page_size_padded=1114112), 36),
        **stack("F", full(block_size=544, num_kv_heads=2, head_size=256), 12),
    }
    groups, _ = groups_of(specs)
    assert shape(groups)[-1] == ("mla_attention", 1, 68)  # 1114112 // 16384
    assert groups[-1].kv_cache_spec.page_size_bytes == 1114112
    assert [len(g.layer_names) for g in groups[:-1]] == [12, 12, 12, 12]


def test_the_rule_of_hidden_states_wastes_nothing_where_a_block_of_200_did():
    # real cases, B35: page 3276800, 10240 bytes per token: 320, not 200
    specs = {
        "m": mamba(shapes=((3276800,),), dtype_bytes=(1,)),
        "F": full(block_size=800),
        "h": hidden(num_kv_heads=1, head_size=5120),
    }
    groups, _ = groups_of(specs)
    spec = groups[-1].kv_cache_spec
    assert spec.block_size == 320
    assert spec.real_page_size_bytes == spec.page_size_bytes == 3276800


def test_a_hidden_state_larger_than_a_page_is_refused():
    specs = {"S": sliding(), "F": full(), "h": hidden(num_kv_heads=64)}
    assert "at most the common page of 65536 bytes" in refused(lambda: groups_of(specs))


def test_hidden_states_join_a_full_model_s_bundle():
    groups, _ = groups_of({**stack("F", full(), 4), "h": hidden()})
    assert len(groups) == 1
    assert groups[0].kv_cache_spec.kind == "unknown"


def test_hidden_states_make_the_scheduler_s_block_huge():
    # lcm(32768, 544, 68) (spec/layout.md 10)
    layout = plan(
        QWEN,
        kv_cache_memory_bytes=60 * GIB,
        max_model_len=32768,
        speculative_method="extract_hidden_states",
        num_speculative_layers=4,
    )
    assert sorted({g.kv_cache_spec.block_size for g in layout.groups}) == [68, 544, 32768]
    assert layout.scheduler_block_size == 557056


# -- pages that are wrong -----------------------------------------------------------------------


def test_a_state_larger_than_its_padded_page_is_refused():
    text = refused(lambda: groups_of({"m": mamba(page_size_padded=311295)}))
    assert text == "at least the 311296 bytes of a state of layer m"


def test_a_page_of_nothing_is_refused():
    assert "at least one byte" in refused(
        lambda: groups_of({"m": mla(block_size=2, compress_ratio=4)})
    )


def test_the_null_block_is_not_counted_by_the_check():
    # 64 blocks of 16 tokens and L 1024: accepted at 1.00x, although one block is reserved (B14)
    planned = pool({"L": full()}, limits(1024), kv_cache_memory_bytes=64 * 65536)
    assert planned.log_lines[-1] == "Maximum concurrency for 1,024 tokens per request: 1.00x"
    text = refused(lambda: pool({"L": full()}, limits(1025), kv_cache_memory_bytes=64 * 65536))
    assert "the estimated maximum model length is 1024." in text


def test_fp8_doubles_the_block_not_the_pool():
    # real cases, B34: 784 -> 1568, 1056 -> 2096 tokens
    wide = plan("Qwen--Qwen3.5-27B", kv_cache_memory_bytes=20 * GIB, max_model_len=32768)
    thin = plan(
        "Qwen--Qwen3.5-27B",
        kv_cache_memory_bytes=20 * GIB,
        max_model_len=32768,
        kv_cache_dtype="fp8",
    )
    assert (wide.settings.block_size, thin.settings.block_size) == (784, 1568)
    assert wide.capacity.tokens < thin.capacity.tokens < 2 * wide.capacity.tokens
    small = {"kv_cache_memory_bytes": 20 * GIB, "max_model_len": 32768}
    blocks = [
        plan("Qwen--Qwen3.5-35B-A3B", kv_cache_dtype=dtype, **small).settings.block_size
        for dtype in ("auto", "fp8")
    ]
    assert blocks == [1056, 2096]
