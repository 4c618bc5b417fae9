"""What is asked of the planner: keys, options, and what only the model can fill in."""

from dataclasses import fields

import pytest

from sim.cli.options import LAYOUT_OPTIONS
from sim.config import Scenario
from sim.errors import ConfigError
from sim.layout.settings import LayoutSettings
from sim.layout_scenario import (
    LayoutRequest,
    LayoutScenario,
    even_stages,
    key_of,
    layout_scenario,
    layout_settings,
)
from sim.models import load_model

GEMMA, QWEN = "google/gemma-3-27b-it", "Qwen/Qwen3.5-27B"


def settings_of(keys, model=GEMMA):
    return layout_settings(layout_scenario({"model": model, **keys}), load_model(model))


def test_every_setting_of_the_planner_has_an_option():
    # no command line makes a KV connector; an environment variable sets the other one
    without = {"kv_connector_supports_hma", "allow_chunked_local_attn_with_hybrid_kv_cache"}
    named = {option.key.rpartition(".")[2] for option in LAYOUT_OPTIONS}
    wanted = {field.name for field in fields(LayoutSettings)} - without - {"draft_layer"}
    assert wanted <= named
    assert {"draft_num_kv_heads", "draft_head_size", "draft_window"} <= named


def test_every_option_is_a_key_of_the_scenario():
    for option in LAYOUT_OPTIONS:
        assert key_of(option.key.rpartition(".")[2]) == option.key


def test_plain_scenario_gives_the_same_settings_as_a_layout_scenario():
    assert layout_settings(Scenario(model="m")) == layout_settings(LayoutScenario(model="m"))


def test_defaults_shown_in_the_help_are_those_of_the_scenario():
    plain = LayoutScenario(model="m")
    for option in LAYOUT_OPTIONS:
        value = plain
        for part in option.key.split("."):
            value = getattr(value, part)
        if option.default.replace(".", "").isdecimal():
            assert float(option.default) == value, option.key


@pytest.mark.parametrize(
    ("given", "expected"),
    [("20GiB", 20 * 2**30), ("10GiB, 9GiB", (10 * 2**30, 9 * 2**30)), (7, 7)],
)
def test_memory_is_one_size_or_one_for_each_worker(given, expected):
    made = settings_of({"cache.kv_cache_memory_bytes": given})
    assert made.kv_cache_memory_bytes == expected


@pytest.mark.parametrize("given", ["auto", -1])
def test_length_that_fits_is_minus_one(given):
    assert settings_of({"scheduler.max_model_len": given}).max_model_len == -1


def test_layers_that_keep_their_dtype_are_a_list():
    made = settings_of({"cache.kv_cache_dtype_skip_layers": "0,1,sliding_window"})
    assert made.kv_cache_dtype_skip_layers == ("0", "1", "sliding_window")


def test_stages_are_given_or_as_even_as_it_goes():
    assert settings_of({"parallel.pipeline_parallel_layers": "30,32"}).pipeline_parallel_layers == (
        30, 32,
    )  # fmt: skip
    # 62 layers over 4 stages: 15 each and 2 left, for the stages before the last
    made = settings_of({"parallel.pipeline_parallel_size": 4})
    assert made.pipeline_parallel_layers == (15, 16, 16, 15)
    assert settings_of({}).pipeline_parallel_layers is None


def test_even_stages_hold_all_layers():
    for num_layers in range(1, 70):
        for num_stages in range(1, num_layers + 1):
            sizes = even_stages(num_layers, num_stages)
            assert sum(sizes) == num_layers
            assert max(sizes) - min(sizes) <= 1
            assert sizes[-1] == min(sizes)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ConfigError, match="at most the model's 62 layers"):
        settings_of({"parallel.pipeline_parallel_size": 63})


@pytest.mark.parametrize(
    ("model", "keys", "method"),
    [
        (QWEN, {}, None),
        (QWEN, {"speculative.num_speculative_tokens": 1}, "mtp"),
        (GEMMA, {"speculative.num_speculative_tokens": 1}, "eagle"),
        (QWEN, {"speculative.num_speculative_tokens": 1, "speculative.speculative_method": "ngram"},
         "ngram"),
    ],
)  # fmt: skip
def test_tokens_without_a_method_mean_the_models_own(model, keys, method):
    assert settings_of(keys, model).speculative_method == method


def test_draft_has_heads_and_a_size_or_neither():
    shape = {"speculative.draft_num_kv_heads": 8, "speculative.draft_head_size": 128}
    draft = settings_of(shape).draft_layer
    assert (draft.num_kv_heads, draft.head_size, draft.sliding_window) == (8, 128, None)
    with pytest.raises(ConfigError, match="together with draft_head_size"):
        settings_of({"speculative.draft_num_kv_heads": 8})


WRONG = {
    "cache.kv_cache_memory_bytes": "20GiB,x",
    "parallel.tensor_parallel_size": 0,
    "parallel.pipeline_parallel_layers": "31,x",
    "parallel.tensor_size": 2,
    "memory.gpu_memory_utilization": 1.5,
    "scheduler.max_model_len": -2,
    "speculative.num_speculative_tokens": -1,
}


@pytest.mark.parametrize("key", WRONG)
def test_wrong_value_names_its_key(key):
    with pytest.raises(ConfigError) as caught:
        layout_scenario({key: WRONG[key]})
    assert all(problem.key.startswith(key) for problem in caught.value.problems)


# -- requests -----------------------------------------------------------------------------------
def test_estimate_takes_weights_and_allowances_off():
    # H100: 85520809984 bytes, of which ceil(x 0.92); 27.4e9 parameters of two bytes over two GPUs
    keys = {"memory.gpu": "h100-80gb", "parallel.tensor_parallel_size": 2}
    request = LayoutRequest.of(GEMMA, None, keys)
    estimate = request.estimate()
    assert estimate.requested == 78679145186  # 85520809984 x 0.92 = 78679145185.28
    assert estimate.weights == request.model.dims.num_parameters_total
    parts = estimate.weights + estimate.activations + estimate.graphs + estimate.other
    assert estimate.kv == estimate.requested - parts
    assert request.plan().waste["kv_memory_bytes"] == estimate.kv


def test_memory_that_is_given_overrides_the_estimate():
    keys = {"memory.gpu": "h100-80gb", "cache.kv_cache_memory_bytes": "20GiB"}
    request = LayoutRequest.of(GEMMA, None, keys)
    assert request.estimate() is None
    assert request.plan().waste["kv_memory_bytes"] == 20 * 2**30


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"memory.gpu": "h10"}, "did you mean"),
        ({"memory.gpu": "h100-80gb", "memory.weight_dtype": "bf61"}, "did you mean bf16?"),
        ({"memory.gpu": "l40s-48gb"}, "GiB of weights"),  # 51 GiB of weights do not fit in 48 GB
    ],
)
def test_estimate_that_cannot_be_made_says_why(keys, text):
    with pytest.raises(ConfigError) as caught:
        LayoutRequest.of(GEMMA, None, keys).plan()
    assert text in str(caught.value)


def test_changes_go_before_the_keys():
    request = LayoutRequest.of(GEMMA, None, {"scheduler.max_num_batched_tokens": 64})
    assert request.plan().limits.max_num_batched_tokens == 64
    assert request.plan({"max_num_batched_tokens": 32}).limits.max_num_batched_tokens == 32


def test_change_of_the_cache_mode_switches_prefix_caching():
    request = LayoutRequest.of(QWEN, None, {})
    assert not request.plan().enable_prefix_caching
    aligned = request.plan({"mamba_cache_mode": "align"})
    assert (aligned.enable_prefix_caching, aligned.mamba_cache_mode) == (True, "align")


def test_number_of_requests_is_checked_where_it_is_given():
    # 1 GiB // (16 layers x 3211264 bytes) = 20 blocks
    keys = {"cache.kv_cache_memory_bytes": "1GiB", "scheduler.max_model_len": 8192}
    request = LayoutRequest.of(QWEN, None, keys)
    assert request.plan().kv_cache_config.num_blocks == 20
    with pytest.raises(ConfigError, match="at most the 20 blocks of the pool"):
        LayoutRequest.of(QWEN, None, {**keys, "scheduler.max_num_seqs": 21}).plan()
    assert LayoutRequest.of(QWEN, None, {**keys, "scheduler.max_num_seqs": 20}).plan()
