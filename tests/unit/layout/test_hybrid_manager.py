"""The hybrid manager's switch and the conversion that replaces it (spec/layout.md 5)."""

from dataclasses import replace

import pytest

from sim.errors import ConfigError
from sim.layout.hybrid_manager import convert_to_one_type, resolve_hybrid_manager
from sim.models import load_model
from tests.unit.layout.layouts import (
    GIB,
    chunked,
    full,
    limits,
    mamba,
    mla,
    plan,
    pool,
    settings,
    shape,
    sliding,
    sliding_mla,
    stack,
)

SCOUT = "meta-llama--Llama-4-Scout-17B-16E-Instruct"
GEMMA = "google--gemma-3-27b-it"
CANNOT = (
    "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified "
    "type."
)


@pytest.fixture
def scout_fixture():
    return load_model(SCOUT)


@pytest.fixture
def gemma_fixture():
    return load_model(GEMMA)


def switch(model, **changes):
    return resolve_hybrid_manager(model, settings(**changes))


def refusal(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems[0].allowed


def test_it_is_on_by_default_and_the_user_may_turn_it_off(gemma_fixture):
    assert switch(gemma_fixture) == (False, [])
    assert switch(gemma_fixture, disable_hybrid_kv_cache_manager=True) == (True, [])
    assert switch(gemma_fixture, disable_hybrid_kv_cache_manager=False) == (False, [])


def test_chunks_keep_it_on_unless_drafting_or_forbidden(scout_fixture):
    assert switch(scout_fixture) == (False, [])
    assert switch(scout_fixture, speculative_method="eagle")[0]
    assert not switch(scout_fixture, speculative_method="ngram")[0]
    off, lines = switch(scout_fixture, allow_chunked_local_attn_with_hybrid_kv_cache=False)
    assert off
    assert lines == [
        "There is a latency regression when using chunked local attention with the hybrid KV cache "
        "manager. Disabling it, by default. To enable it, set the environment "
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1."
    ]


def test_it_cannot_be_forced_where_the_engine_cannot_have_it(scout_fixture):
    text = refusal(
        lambda: switch(
            scout_fixture, speculative_method="eagle", disable_hybrid_kv_cache_manager=False
        )
    )
    assert text == (
        "Hybrid KV cache manager was explicitly enabled but is not supported in this "
        "configuration. Consider omitting the --no-disable-hybrid-kv-cache-manager flag to let "
        "vLLM decide automatically."
    )


def test_a_connector_turns_it_off_unless_the_user_forces_it(gemma_fixture):
    off, lines = switch(gemma_fixture, kv_connector_supports_hma=False)
    assert off
    assert lines[0].startswith("Turning off hybrid kv cache manager because `--kv-transfer-config`")
    # appendix C30: only the undecided switch asks the connector
    forced = {"kv_connector_supports_hma": False, "disable_hybrid_kv_cache_manager": False}
    assert switch(gemma_fixture, **forced) == (False, [])


# -- conversion ---------------------------------------------------------------------------------


def test_windows_and_chunks_are_recorded_and_lose_the_stride_flag():
    specs = {
        "f": full(), "w": sliding(head_size_v=64), "c": chunked(num_kv_heads=4),
    }  # fmt: skip
    converted, lines = convert_to_one_type(specs)
    assert converted["f"] == full()
    loose = {"indexes_kv_by_block_stride": False}
    assert converted["w"] == full(sliding_window=1024, head_size_v=64, **loose)
    assert converted["c"] == full(attention_chunk_size=8192, num_kv_heads=4, **loose)
    assert lines[0].startswith("Hybrid KV cache manager is disabled for this hybrid model, This")


def test_a_backend_without_the_flag_gives_one_merged_group_that_records_the_window():
    loose = {"indexes_kv_by_block_stride": False}
    specs = {**stack("F", full(**loose), 1), **stack("S", sliding(**loose), 2)}
    planned = pool(specs, disable_hybrid_kv_cache_manager=True)
    (group,) = planned.groups
    assert group.kv_cache_spec == full(sliding_window=1024, **loose)
    # with it, the converted layers differ by the flag: a bundle (5.2 ii)
    bundled = pool(
        {**stack("F", full(), 1), **stack("S", sliding(), 2)}, disable_hybrid_kv_cache_manager=True
    )
    assert type(bundled.groups[0].kv_cache_spec).__name__ == "UniformTypeKVCacheSpecs"
    assert planned.capacity.tokens == bundled.capacity.tokens


def test_specs_of_one_type_stay_as_they_are():
    windows = stack("S", sliding(), 3)
    assert convert_to_one_type(windows) == (windows, [])
    mistral = plan("mistralai--Mistral-7B-v0.1", disable_hybrid_kv_cache_manager=True)
    assert shape(mistral.groups) == [("sliding_window", 32, 16)]


def test_latent_windows_become_latent_caches_of_the_first_full_block():
    specs = {"m": mla(block_size=256), "w": sliding_mla(alignment=512)}
    converted, _ = convert_to_one_type(specs)
    assert converted["w"] == mla(
        block_size=256,
        head_size=512,
        alignment=512,
        cache_dtype_str=None,
        indexes_kv_by_block_stride=False,
    )


@pytest.mark.parametrize(
    "specs",
    [
        {"m": mamba(), "f": full()},
        {"f": full(block_size=32), "w": sliding()},  # --block-size 32 (5.2 iv)
        {"w": sliding(), "c": chunked()},  # no full layer (5.2 v)
    ],
)
def test_what_cannot_be_converted_is_refused(specs):
    assert refusal(lambda: convert_to_one_type(specs)) == CANNOT


def test_two_windows_are_refused_in_other_words():
    specs = {"f": full(), "w": sliding(), "v": sliding(sliding_window=512)}
    assert refusal(lambda: convert_to_one_type(specs)) == (
        "All attention layers in the same KV cache group must have the same window size."
    )


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("Qwen--Qwen3.5-27B", {}),  # 48 states and 16 full layers (real cases, B40)
        ("google--gemma-4-31B", {"block_size": 32}),  # blocks of 16 and 32
        (GEMMA, {"block_size": 32}),
    ],
)
def test_models_that_cannot_do_without_it(model, changes):
    text = refusal(
        lambda: plan(
            model, kv_cache_memory_bytes=200 * GIB, disable_hybrid_kv_cache_manager=True, **changes
        )
    )
    assert text == CANNOT


def test_deepseek_v4_without_it_is_one_bundle():
    # 167 layers of 83480832 bytes, 771 blocks at 60 GiB, 1.51x (spec/layout.md 6.3)
    layout = plan(
        "deepseek-ai--DeepSeek-V4-Flash",
        kv_cache_memory_bytes=60 * GIB,
        max_model_len=131072,
        kv_cache_dtype="fp8_ds_mla",
        disable_hybrid_kv_cache_manager=True,
    )
    (group,) = layout.groups
    assert len(group.layer_names) == 167
    assert layout.bytes_per_block == 83480832
    assert layout.kv_cache_config.num_blocks == 771
    assert layout.log_lines[-1].endswith("1.51x")


def test_quantised_windows_keep_their_mode_and_chunks_lose_it():
    # a chunk's int4 page doubles: 16 * 8 * 256 bytes and no scales (spec/layout.md 5.2)
    mode = {"quant_mode": "INT4_PER_TOKEN_HEAD", "dtype_bytes": 1}
    mode["quant_mode"] = type(full().quant_mode)(mode["quant_mode"])
    specs = {"f": full(**mode), "w": sliding(**mode), "c": chunked(**mode)}
    converted, _ = convert_to_one_type(specs)
    assert converted["w"].page_size_bytes == 17408
    assert converted["c"].page_size_bytes == 32768


def test_the_bound_of_a_window_is_gone_without_the_manager():
    specs = {"f": full(), "w": sliding()}
    bound = limits(32768)
    kept = pool(specs, bound, disable_hybrid_kv_cache_manager=True)
    assert kept.capacity.admission_bytes == 2 * 2048 * 65536
    both = pool(specs, bound)
    assert both.capacity.admission_bytes == (2048 + 577) * 65536
    assert replace(bound) == kept.limits
