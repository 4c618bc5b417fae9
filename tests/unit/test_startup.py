"""What is refused at start-up, and what is remarked on."""

from __future__ import annotations

import pytest

from sim.config import Scenario, validated
from sim.errors import ConfigError
from sim.simulation import assemble

LLAMA = "meta-llama--Llama-3.1-8B"
JAMBA = "ai21labs--Jamba-v0.1"


def made(model=LLAMA, *, cache=None, **sections):
    return assemble(validated(Scenario, {"model": model, "cache": cache or {}, **sections}))


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [
        # vLLM 0.25.1's SchedulerConfig refuses both.
        (
            {"max_num_batched_tokens": 8},
            "scheduler.max_num_batched_tokens: 8: at least max_num_seqs (1024)",
        ),
        (
            {"enable_chunked_prefill": False, "max_model_len": 16384},
            "scheduler.max_num_batched_tokens: 8192: at least max_model_len (16384) "
            "without chunked prefill",
        ),
    ],
)
def test_settings_that_the_engine_would_not_start_with_are_refused(scheduler, line):
    with pytest.raises(ConfigError) as caught:
        made(scheduler=scheduler)
    assert caught.value.lines() == [line]


@pytest.mark.parametrize(
    "scheduler",
    [
        {"max_num_batched_tokens": 8, "max_num_seqs": 8},
        {"enable_chunked_prefill": False, "max_model_len": 8192},
    ],
)
def test_the_nearest_settings_that_it_would_start_with_are_taken(scheduler):
    assert made(scheduler=scheduler).layout.kv_cache_config.num_blocks > 0


def test_a_pool_too_large_to_simulate_is_refused_before_memory_is_taken():
    with pytest.raises(ConfigError, match=r"cache: 1,099,511,627,776 blocks: a pool of at most"):
        made(cache={"num_gpu_blocks_override": 2**40})


def test_weights_and_kv_memory_that_do_not_fit_the_device_are_remarked_on():
    # 8,030,000,000 parameters of 2 bytes are 14.96 GiB; an L40S has less than 48 GiB.
    (note,) = made(hardware="l40s-48gb", cache={"kv_cache_memory_bytes": "40GiB"}).notes
    assert note.startswith("14.96 GiB of weights (2 bytes per parameter) and 40 GiB of KV memory")
    assert made(hardware="l40s-48gb", cache={"kv_cache_memory_bytes": "20GiB"}).notes == ()


@pytest.mark.parametrize(
    ("model", "cache", "key"),
    [
        (LLAMA, {"enable_prefix_caching": False, "prefix_cache_retention_interval": 16},
         "prefix_cache_retention_interval"),
        (LLAMA, {"mamba_cache_mode": "align"}, "mamba_cache_mode"),
        (JAMBA, {"mamba_cache_mode": "align"}, "mamba_cache_mode"),
        (LLAMA, {"mamba_block_size": 32}, "mamba_block_size"),
        (JAMBA, {"enable_prefix_caching": True, "mamba_cache_mode": "align",
                 "mamba_block_size": 160}, "mamba_block_size"),
        (LLAMA, {"enable_prefix_caching": False, "kv_cache_metrics": True}, "kv_cache_metrics"),
    ],
)  # fmt: skip
def test_settings_without_effect_are_named(model, cache, key):
    notes = made(
        model, cache={"kv_cache_memory_bytes": "20GiB", **cache}, hardware="h200-141gb"
    ).notes
    assert [note.split(" has no effect: ")[0] for note in notes] == [key]


@pytest.mark.parametrize(
    ("sections", "note"),
    [
        ({"engine": {"kv_events_hash": "sha256_cbor"}}, "kv_events_hash: kv_events is not set"),
        ({"engine": {"kv_events_hash_seed": "5"}}, "kv_events_hash_seed: kv_events is not set"),
        ({"engine": {"kv_events": "jsonl", "kv_events_hash_seed": "5"}},
         "kv_events_hash_seed: kv_events_hash is prefix_id"),
        ({"cache": {"kv_cache_metrics_sample": 0.5}},
         "kv_cache_metrics_sample: kv_cache_metrics is off"),
        ({"speculative": {"draft_window": 64}}, "draft_window: num_speculative_tokens is 0"),
        ({"speculative": {"acceptance": {"params": {"rate": 0.5}}}},
         "acceptance: num_speculative_tokens is 0"),
        ({"speculative": {"acceptance": {"name": "per_position", "params": {"rates": [0.5]}}}},
         "acceptance: num_speculative_tokens is 0"),
    ],
)  # fmt: skip
def test_parts_of_what_is_off_are_named(sections, note):
    assert made(hardware="b200-180gb", **sections).notes == (
        note.replace(": ", " has no effect: "),
    )


def test_a_resolved_scenario_is_remarked_on_no_more_than_what_it_was_made_from():
    from sim.simulation import assemble

    first = made(hardware="b200-180gb")
    assert assemble(first.scenario).notes == first.notes == ()


def test_one_model_has_one_name_and_its_file_is_part_of_the_run_id():
    from sim.simulation import identify

    by_stem = identify(validated(Scenario, {"model": LLAMA}))
    by_hub_id = identify(validated(Scenario, {"model": "meta-llama/Llama-3.1-8B"}))
    assert by_stem == by_hub_id


def test_another_file_at_the_same_path_is_another_run(tmp_path):
    from sim.configs_dir import configs_dir
    from sim.simulation import identify

    text = (configs_dir() / "models" / f"{LLAMA}.json").read_text()
    path = tmp_path / "config.json"
    ids = []
    for layers in (32, 30):
        path.write_text(text.replace('"num_hidden_layers": 32', f'"num_hidden_layers": {layers}'))
        ids.append(identify(validated(Scenario, {"model": str(path)}))[1])
    assert ids[0] != ids[1]
