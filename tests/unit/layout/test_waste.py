import pytest

from sim.layout.grouping import GROUPING_HEURISTICS
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
@pytest.mark.parametrize("grouping", list(GROUPING_HEURISTICS))
def test_the_parts_of_every_block_sum_to_the_pool_s_block(model, grouping):
    layout = plan(model, grouping=grouping, kv_cache_memory_bytes=200 * GIB)
    groups = layout.kv_cache_config.kv_cache_groups
    parts = block_bytes(layout)
    assert len(parts) == len(groups)
    for part, group in zip(parts, groups, strict=True):
        assert part.layer_padding + part.page_padding + part.content == layout.bytes_per_block
        assert min(part.layer_padding, part.page_padding) >= 0
        assert part.block_size == group.kv_cache_spec.block_size
        assert part.is_state or part.bytes_per_slot * part.block_size == part.content


def test_layer_padding_counts_against_the_longest_real_group():
    parts = block_bytes(plan(GEMMA, grouping="min_layers"))
    assert [part.layer_padding // 131072 for part in parts] == [0, 0, 0, 0, 0, 0, 8]
    assert all(isinstance(value, int) for value in plan(GEMMA).waste.values())
