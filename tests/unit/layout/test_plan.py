from dataclasses import replace

import pytest

from sim.config import CacheConfig, Scenario, SchedulerConfig
from sim.errors import ConfigError
from sim.layout.plan import plan_layout
from sim.models import known_models, load_model
from sim.profiles import PROFILES
from sim.simulation import assemble
from tests.unit.layout.layouts import GIB, plan, settings

GEMMA = "google--gemma-3-27b-it"
JAMBA = "ai21labs--Jamba-v0.1"


def shape(layout):
    """(kind, layers, block size) of each group."""
    return [
        (g.kv_cache_spec.kind, len(g.layer_names), g.kv_cache_spec.block_size)
        for g in layout.kv_cache_config.kv_cache_groups
    ]


def test_gemma_3_27b_at_20_gib():
    layout = plan(GEMMA)
    assert layout.kv_cache_config.num_blocks == 16384
    assert len(layout.kv_cache_config.kv_cache_groups) == 7
    assert layout.log_lines == (
        "Add 8 padding layers, may waste at most 15.38% KV cache memory",
        "GPU KV cache size: 184,270 tokens",
        "Maximum concurrency for 131,072 tokens per request: 1.41x",
    )
    assert (layout.page_size_bytes, layout.bytes_per_block) == (131072, 1310720)
    assert layout.num_layers_longest_group == 10
    assert layout.enable_prefix_caching
    # tensor 8 is shared by four 9-wide sliding groups and the full one, tensor 9 by full only
    shared = [len(tensor.shared_by) for tensor in layout.kv_cache_config.kv_cache_tensors]
    assert shared == [7] * 8 + [5, 1]


def test_min_layers_has_the_same_pool_in_another_order():
    layout = plan(GEMMA, grouping="min_layers")
    lengths = [length for _, length, _ in shape(layout)]
    assert lengths == [10, 10, 10, 10, 10, 10, 2]
    assert shape(layout)[0][0] == "full_attention"
    assert layout.kv_cache_config.num_blocks == 16384


def test_jamba_says_how_its_block_size_came_about():
    layout = plan(JAMBA)
    assert shape(layout) == [("mamba", 4, 262144)] * 7 + [("full_attention", 4, 80)]
    assert layout.log_lines == (
        "Setting attention block size to 80 tokens to ensure that attention page size is >= mamba "
        "page size.",
        "Padding mamba page size by 5.26% to ensure that mamba page size and attention page size "
        "are exactly equal.",
        "GPU KV cache size: 1,307,846 tokens",
        "Maximum concurrency for 262,144 tokens per request: 4.99x",
    )
    assert (layout.block_size, layout.enable_prefix_caching) == (80, False)
    assert (layout.scheduler_block_size, layout.hash_block_size) == (1310720, 1310720)


def test_jamba_align_has_blocks_of_80_everywhere():
    layout = plan(JAMBA, enable_prefix_caching=True, mamba_cache_mode="align")
    assert shape(layout) == [("mamba", 4, 80)] * 7 + [("full_attention", 4, 80)]
    assert (layout.scheduler_block_size, layout.hash_block_size) == (80, 80)
    assert layout.mamba_cache_mode == "align"
    assert layout.capacity.tokens == 1305064
    specs = {g.kv_cache_spec for g in layout.kv_cache_config.kv_cache_groups[:7]}
    assert {spec.mamba_cache_mode for spec in specs} == {"align"}


def test_jamba_align_needs_steps_of_a_whole_block():
    align = {"enable_prefix_caching": True, "mamba_cache_mode": "align"}
    assert plan(JAMBA, max_num_batched_tokens=80, **align).block_size == 80
    with pytest.raises(ConfigError, match=r"scheduler\.max_num_batched_tokens: 79"):
        plan(JAMBA, max_num_batched_tokens=79, **align)


def test_an_fp8_cache_halves_the_attention_page_and_doubles_jamba_s_block():
    layout = plan(JAMBA, kv_cache_dtype="fp8")
    # 16 * ceil(311296 / (16 * 2048)) = 160 tokens of 2048 bytes
    assert (layout.settings.block_size, layout.page_size_bytes) == (160, 327680)


def test_state_dtypes_change_the_state_only():
    # 49152 + 8192 * 16 * 4 = 573440 bytes; 16 * ceil(573440 / 65536) = 144 tokens
    assert plan(JAMBA, mamba_ssm_cache_dtype="float32").settings.block_size == 144
    # the conv dtype is the state's too if that is auto: 2 * 311296; 16 * ceil(622592 / 65536)
    assert plan(JAMBA, mamba_cache_dtype="float32").settings.block_size == 160
    # conv 98304, ssm 262144: 16 * ceil(360448 / 65536)
    mixed = plan(JAMBA, mamba_cache_dtype="float32", mamba_ssm_cache_dtype="bfloat16")
    assert mixed.settings.block_size == 96


def test_windowed_layers_ignore_the_block_size_until_pages_are_made_equal():
    assert {size for _, _, size in shape(plan(GEMMA, block_size=32))} == {32}
    mistral = plan("mistralai--Mistral-7B-v0.1", block_size=32)
    assert shape(mistral) == [("sliding_window", 32, 16)]


def test_an_override_sets_the_blocks():
    layout = plan("meta-llama--Llama-3.1-8B", max_model_len=1024, num_gpu_blocks_override=100)
    assert layout.kv_cache_config.num_blocks == 100
    assert layout.log_lines == (
        "Overriding num_gpu_blocks=10240 with num_gpu_blocks_override=100",
        "GPU KV cache size: 1,600 tokens",
        "Maximum concurrency for 1,024 tokens per request: 1.56x",
    )


@pytest.mark.parametrize("model", known_models())
def test_settings_come_back_resolved_and_plan_the_same_again(model):
    first = plan(model, kv_cache_memory_bytes=700 * GIB)
    open_fields = {
        name for name in type(first.settings).__slots__ if getattr(first.settings, name) is None
    }
    assert open_fields == {
        "num_gpu_blocks_override",
        "pipeline_parallel_layers",
        "speculative_method",
        "num_speculative_layers",
        "draft_layer",
        "attention_backend",
    }
    again = plan_layout(first.model, first.settings)
    assert again.settings == first.settings
    assert again.kv_cache_config == first.kv_cache_config
    assert again.capacity == first.capacity
    assert again.hash_block_size == first.hash_block_size


def test_the_estimate_reaches_beyond_the_length_that_was_asked_for():
    layout = plan("meta-llama--Llama-3.1-8B", max_model_len=1024, kv_cache_memory_bytes=GIB)
    # 512 blocks of 2 MiB, 16 tokens each
    assert layout.capacity.estimated_max_model_len == 8192


def test_a_length_beyond_the_model_s_is_refused():
    with pytest.raises(ConfigError, match=r"scheduler\.max_model_len: 131073: at most .* 131072"):
        plan(GEMMA, max_model_len=131073)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "16", 2**41])
def test_numbers_out_of_range_are_named_one_line_each(value):
    with pytest.raises(ConfigError) as caught:
        plan(GEMMA, block_size=value, max_num_batched_tokens=value)
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"cache.block_size", "scheduler.max_num_batched_tokens"}


@pytest.mark.parametrize("name", ["kv_cache_dtype", "mamba_cache_dtype", "mamba_ssm_cache_dtype"])
def test_an_unknown_dtype_lists_the_known_ones(name):
    with pytest.raises(ConfigError, match=rf"cache\.{name}: bfloat61: known: bfloat16, auto, "):
        plan(JAMBA, **{name: "bfloat61"})


def test_a_second_profile_needs_values_only():
    newer = replace(PROFILES["vllm-0.25.1"], name="newer", batches_in_flight=2)
    layout = plan_layout(load_model(GEMMA), settings(), newer)
    # windows: ceil((1023 + 2 * 8192) / 16) + 1 = 1089 blocks in each of six groups
    assert layout.capacity.blocks_per_request == 8192 + 6 * 1089


def test_the_profile_s_defaults_are_the_scenario_s():
    profile = PROFILES["vllm-0.25.1"]
    assert SchedulerConfig().max_num_batched_tokens == profile.default_max_num_batched_tokens
    assert SchedulerConfig().max_num_seqs == profile.default_max_num_seqs
    assert CacheConfig().grouping == profile.default_grouping


def test_a_simulation_takes_the_mode_all():
    cache = {"enable_prefix_caching": True, "mamba_cache_mode": "all"}
    assert assemble(Scenario(model=JAMBA, cache=cache)).layout.mamba_cache_mode == "all"


def test_a_simulation_takes_latent_attention():
    layout = assemble(Scenario(model="deepseek-ai--DeepSeek-V3")).layout
    (group,) = layout.kv_cache_config.kv_cache_groups
    assert type(group.kv_cache_spec).__name__ == "MLAAttentionSpec"


def test_the_longest_length_of_a_model_that_names_none_is_the_user_s():
    falcon = "tiiuae--falcon-mamba-7b"
    assert plan(falcon).limits.max_model_len == 2048
    assert plan(falcon, max_model_len=32768).limits.max_model_len == 32768
