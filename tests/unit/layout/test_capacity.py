import pytest

from sim.errors import ConfigError
from sim.layout.capacity import (
    NO_MEMORY,
    admission_bytes,
    blocks_per_request,
    check_admission,
    longest_model_len,
)
from sim.layout.kv_cache_config import KVCacheGroupSpec
from sim.layout.kv_cache_spec import FullAttentionSpec
from sim.layout.plan import plan_pool
from sim.profiles import PROFILES, concurrency_times_length
from tests.unit.layout.layouts import GIB, full, limits, plan, settings, sliding, stack


def refusal(model, **changes):
    with pytest.raises(ConfigError) as caught:
        plan(model, **changes)
    (problem,) = caught.value.problems
    assert problem.key == "cache.kv_cache_memory_bytes"
    return problem.allowed


def gemma_groups():
    """Gemma-3-27b: 16 heads of 128, sliding 9 9 9 9 8 8, full 10."""
    window, whole = sliding(num_kv_heads=16), full(num_kv_heads=16)
    lengths = [(9, window)] * 4 + [(8, window)] * 2 + [(10, whole)]
    return [
        KVCacheGroupSpec(tuple(f"{idx}.{n}" for n in range(length)), spec)
        for idx, (length, spec) in enumerate(lengths)
    ]


def test_the_need_is_the_sum_of_all_groups_blocks_of_full_width():
    # 10 layers * 131072 bytes * (8192 full + 6 * 577 sliding) (spec/layout.md 8)
    assert admission_bytes(gemma_groups(), limits(131072)) == 10 * 131072 * (8192 + 6 * 577)
    assert blocks_per_request(gemma_groups(), limits(131072)) == 11654


def test_a_refusal_is_worded_as_in_the_engine():
    text = refusal("google--gemma-3-27b-it", kv_cache_memory_bytes=10 * GIB)
    assert text == (
        "To serve at least one request with the model's max seq len (131072), (14.23 GiB KV cache "
        "is needed, which is larger than the available KV cache memory (10.0 GiB). Based on the "
        "available memory, the estimated maximum model length is 75680. Try increasing "
        "`gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or "
        "decreasing `max_model_len` when initializing the engine. See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    )


def test_an_override_does_not_skip_the_check():
    text = refusal("meta-llama--Llama-3.1-8B", max_model_len=1024, num_gpu_blocks_override=10)
    assert "(0.12 GiB KV cache is needed" in text
    assert "memory (0.02 GiB). " in text
    assert "the estimated maximum model length is 160. " in text


def test_the_estimate_is_left_out_where_not_even_one_token_fits():
    text = refusal("google--gemma-3-27b-it", kv_cache_memory_bytes=1)
    assert "memory (0.0 GiB). Try increasing" in text
    assert "estimated" not in text


def test_no_memory_at_all_has_its_own_words():
    text = refusal("google--gemma-3-27b-it", kv_cache_memory_bytes=0)
    assert text == NO_MEMORY
    assert text.startswith(
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine (this flag also controls CPU memory reservation on the CPU "
        "backend, despite its name). See https://docs.vllm.ai/"
    )


def test_a_need_equal_to_the_memory_is_accepted():
    groups, bound = gemma_groups(), limits(131072)
    need = admission_bytes(groups, bound)
    check_admission(groups, bound, need)
    with pytest.raises(ConfigError):
        check_admission(groups, bound, need - 1)


def test_the_longest_length_is_the_last_that_passes():
    groups, bound = gemma_groups(), limits(131072)
    # 10 GiB hold 8192 blocks; 6 * 577 of them are windows; the rest are full: 16 tokens each
    assert longest_model_len(groups, bound, 10 * GIB, 131072) == 16 * (8192 - 6 * 577)
    # one block of 16 tokens in the full group, and two in each sliding one
    assert longest_model_len(groups, bound, 13 * 1310720, 131072) == 16
    assert longest_model_len(groups, bound, 13 * 1310720 - 1, 131072) == 0


def test_the_longest_length_stops_at_the_bound():
    assert longest_model_len(gemma_groups(), limits(131072), 2**60, 4096) == 4096


class OneAndAHalfPages(FullAttentionSpec):
    """A kind whose maximum is no multiple of its page, as a bundle's can be."""

    def max_memory_usage_bytes(self, limits):
        return self.page_size_bytes * 3 // 2


def test_each_group_is_rounded_up_in_the_need_and_all_together_in_the_concurrency():
    half = OneAndAHalfPages(block_size=16, num_kv_heads=8, head_size=128, dtype_bytes=2)
    groups = [KVCacheGroupSpec(("a",), half), KVCacheGroupSpec(("b",), half)]
    assert admission_bytes(groups, limits()) == (2 + 2) * 65536
    assert blocks_per_request(groups, limits()) == 3  # ceil(1.5 + 1.5)


def test_tokens_are_a_truncated_float_product():
    # exact: 1001 / 250 * 4000 = 16016 (spec/layout.md 9)
    pool = plan_pool(
        stack("L", full(), 1),
        settings(kv_cache_memory_bytes=1001 * 65536),
        limits(max_model_len=4000),
        longest=4000,
    )
    assert pool.kv_cache_config.num_blocks == 1001
    assert pool.capacity.blocks_per_request == 250
    assert pool.capacity.tokens == 16015
    assert concurrency_times_length(1001, 250, 4000)[1] == 16015


def test_tokens_before_0_21_go_by_groups_and_the_smallest_block():
    # 16384 blocks // 7 groups * 16 tokens (spec/layout.md 15.4)
    layout = plan("google--gemma-3-27b-it")
    assert layout.capacity.tokens_before_0_21 == 16384 // 7 * 16
    # 16384 // 8 * 80
    assert plan("ai21labs--Jamba-v0.1").capacity.tokens_before_0_21 == 163840


def test_an_all_sliding_model_needs_little_for_a_long_request():
    # ceil((4095 + 8192) / 16) + 1 = 769 blocks instead of 2048 (spec/layout.md 9)
    layout = plan("mistralai--Mistral-7B-v0.1")
    assert layout.capacity.blocks_per_request == 769
    assert layout.log_lines[0] == "GPU KV cache size: 436,338 tokens"


def test_a_window_that_never_binds_costs_one_block_more():
    # 163,820 tokens against 163,840 (spec/layout.md 15.12)
    assert plan("microsoft--Phi-4-mini-instruct").capacity.tokens == 163820


def test_capacity_in_tokens_depends_on_the_length():
    short = plan("google--gemma-3-27b-it", max_model_len=32768)
    assert short.log_lines[-2:] == (
        "GPU KV cache size: 97,435 tokens",
        "Maximum concurrency for 32,768 tokens per request: 2.97x",
    )


def test_the_profile_is_what_counts_tokens():
    assert PROFILES["vllm-0.25.1"].token_capacity(16384, 11654, 131072) == (16384 / 11654, 184270)
    with pytest.raises(ConfigError, match=r"engine\.profile: vllm-0\.25: known: vllm-0\.25\.1"):
        PROFILES["vllm-0.25"]
