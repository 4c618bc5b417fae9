import pytest

from sim.layout.waste import block_bytes
from sim.models import known_models
from tests.unit.layout.layouts import GIB, plan

GEMMA = "google--gemma-3-27b-it"


def test_idle_slots_are_weighted_by_the_blocks_of_their_group():
    # (4 * 1 + 2 * 2) * 577 of 10 * 11654 page slots (spec/layout.md 13)
    waste = plan(GEMMA).waste
    assert waste["request_idle_page_slots"] == 4616
    assert waste["request_page_slots"] == 116540
    assert waste["request_layer_padding_bytes"] == 4616 * 131072
    assert waste["request_bytes"] == 116540 * 131072
    assert waste["request_page_padding_bytes"] == 0
    assert waste["padding_layers"] == 8


def test_memory_that_fills_no_block_is_the_remainder():
    # gpt-oss-20b: 20 GiB hold 54613 blocks of 12 * 32768 bytes
    waste = plan("openai--gpt-oss-20b").waste
    assert waste["remainder_bytes"] == 20 * GIB - 54613 * 393216
    assert waste["null_block_bytes"] == 393216
    assert waste["kv_memory_bytes"] == 20 * GIB


def test_an_override_strands_memory_or_counts_more_than_was_given():
    llama = {"model": "meta-llama--Llama-3.1-8B", "max_model_len": 1024}
    small = plan(**llama, num_gpu_blocks_override=100).waste
    assert small["remainder_bytes"] == 20 * GIB - 100 * 2**21
    large = plan(**llama, num_gpu_blocks_override=20_000).waste
    assert (large["remainder_bytes"], large["kv_memory_bytes"]) == (0, 20_000 * 2**21)


def test_recurrent_pages_are_padded_to_attention_s():
    # align: 7 groups hold 2 states, 4 layers each; 327680 - 311296 bytes of padding in each page
    align = plan("ai21labs--Jamba-v0.1", enable_prefix_caching=True, mamba_cache_mode="align")
    assert align.waste["request_page_padding_bytes"] == 7 * 2 * 4 * 16384
    state, attention = block_bytes(align)[0], block_bytes(align)[-1]
    assert (state.content, state.page_padding) == (4 * 311296, 4 * 16384)
    assert (state.is_state, state.bytes_per_slot) == (True, 4 * 311296)
    assert (attention.content, attention.page_padding) == (4 * 327680, 0)
    assert (attention.is_state, attention.bytes_per_slot) == (False, 4 * 4096)


@pytest.mark.parametrize("model", known_models())
@pytest.mark.parametrize("grouping", ["vllm", "min_layers", "gcd"])
def test_the_parts_of_every_block_sum_to_the_pool_s_block(model, grouping):
    layout = plan(model, grouping=grouping, kv_cache_memory_bytes=4096 * GIB)
    parts = block_bytes(layout)
    for part, group in zip(parts, layout.groups, strict=True):
        assert part.layer_padding + part.page_padding + part.content == layout.bytes_per_block
        assert min(part.layer_padding, part.page_padding) >= 0
        assert part.block_size == group.kv_cache_spec.block_size
        assert part.is_state or part.bytes_per_slot * part.block_size == part.content


def test_layer_padding_counts_against_the_longest_real_group():
    parts = block_bytes(plan(GEMMA, grouping="min_layers"))
    assert [part.layer_padding // 131072 for part in parts] == [0, 0, 0, 0, 0, 0, 8]
    assert all(isinstance(value, int) for value in plan(GEMMA).waste.values())


def test_a_bundle_s_block_is_all_its_layers_pages_and_nothing_else():
    # V3.2: 61 * (41984 + 8448) bytes, nothing idle (spec/layout.md 13)
    layout = plan(
        "deepseek-ai--DeepSeek-V3.2", kv_cache_memory_bytes=40 * GIB, kv_cache_dtype="fp8_ds_mla"
    )
    (part,) = block_bytes(layout)
    assert (part.layer_padding, part.page_padding, part.content) == (0, 0, 61 * (41984 + 8448))
    assert (layout.waste["padding_layers"], layout.waste["request_layer_padding_bytes"]) == (0, 0)


def test_several_bundles_leave_the_pages_of_the_others_idle():
    layout = plan(
        "deepseek-ai--DeepSeek-V4-Flash",
        kv_cache_memory_bytes=60 * GIB,
        max_model_len=131072,
        kv_cache_dtype="fp8_ds_mla",
    )
    # R = 1039680; group pages 1002240, 823680, 786240, 967680, 748800 (golden case)
    padding = [part.layer_padding for part in block_bytes(layout)]
    assert padding == [37440, 216000, 253440, 72000, 290880]
    # C4 states: 21 of 32768 in 37440 and 21 of 8192 in 8640
    states = block_bytes(layout)[3]
    assert states.page_padding == 21 * (37440 - 32768) + 21 * (8640 - 8192)


def test_the_workers_memory_is_counted_together_and_what_one_strands():
    # gpt-oss-20b on two stages of 6 + 6 layers: 196608 bytes per block, 49152 blocks on both
    layout = plan(
        "openai--gpt-oss-20b",
        kv_cache_memory_bytes=(10 * GIB, 9 * GIB),
        pipeline_parallel_layers=(12, 12),
    )
    waste = layout.waste
    assert waste["kv_memory_bytes"] == 19 * GIB
    assert waste["remainder_bytes"] == 10 * GIB - 49152 * 196608
    assert layout.bytes_per_block == 2 * 196608
    assert waste["null_block_bytes"] == 2 * 196608
    for part in block_bytes(layout):
        assert part.layer_padding + part.page_padding + part.content == 2 * 196608


def test_ranks_of_one_stage_count_each_for_itself():
    layout = plan(
        "openai--gpt-oss-20b", kv_cache_memory_bytes=(10 * GIB, 9 * GIB), tensor_parallel_size=2
    )
    # 4 heads of 64 on each rank: 16384 bytes a page, 12 pages
    assert layout.kv_cache_config.num_blocks == 9 * GIB // (12 * 16384)
    assert layout.bytes_per_block == 2 * 12 * 16384
    assert [part.layer_padding for part in block_bytes(layout)] == [0, 0]
