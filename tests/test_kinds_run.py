"""A whole run of a model of each kind: what the layout plans the manager serves."""

from __future__ import annotations

import pytest

from sim.config import Scenario, validated
from sim.errors import ConfigError
from sim.simulation import assemble, build_manager, simulate

SHORT = {"distribution": "uniform", "mean": 40.0, "cv": 0.3, "maximum": 60}
LONG = {"distribution": "uniform", "mean": 900.0, "cv": 0.3, "maximum": 1400}
WORKLOAD = {
    "name": "shared_prefix",
    "params": {
        "num_requests": 12,
        "num_tenants": 2,
        "system_prompt": LONG,
        "user": SHORT,
        "output": SHORT,
        "arrival": {"kind": "closed", "concurrency": 4},
    },
}
SPEECH = {**WORKLOAD, "params": {**WORKLOAD["params"], "system_prompt": SHORT}}
STATES = {"enable_prefix_caching": True, "mamba_cache_mode": "all"}


def scenario(model, *, blocks, cache=None, workload=WORKLOAD, max_model_len=2048, **sections):
    return validated(
        Scenario,
        {
            "model": model,
            "cache": {"num_gpu_blocks_override": blocks, **(cache or {})},
            "scheduler": {"max_model_len": max_model_len},
            "engine": {"check_every": 10},
            "workload": workload,
            **sections,
        },
    )


@pytest.mark.parametrize(
    ("model", "kinds", "settings"),
    [
        (
            "meta-llama--Llama-4-Scout-17B-16E-Instruct",
            {"ChunkedLocalAttentionManager", "FullAttentionManager"},
            {"blocks": 1600},
        ),
        ("deepseek-ai--DeepSeek-V3", {"FullAttentionManager"}, {"blocks": 600}),
        (
            "deepseek-ai--DeepSeek-V4-Flash",
            {"FullAttentionManager", "SlidingWindowManager"},
            {"blocks": 4000},
        ),
        (
            "openai--gpt-oss-20b",
            {"FullAttentionManager", "SlidingWindowManager"},
            {"blocks": 900},
        ),
        ("tiiuae--falcon-mamba-7b", {"MambaManager"}, {"blocks": 400, "cache": STATES}),
        (
            "ibm-granite--granite-4.0-h-tiny",
            {"FullAttentionManager", "MambaManager"},
            {"blocks": 400, "cache": STATES},
        ),
    ],
)
def test_a_model_runs_and_its_prefixes_are_hit(model, kinds, settings):
    run = scenario(model, **settings)
    managers = build_manager(assemble(run)).coordinator.single_type_managers
    assert {type(manager).__name__ for manager in managers} == kinds
    requests = simulate(run).tables.requests
    assert list(requests["outcome"]) == ["finished"] * 12
    assert sum(requests["cached_tokens"]) > 0


def test_an_encoder_is_held_by_each_request():
    """1,500 encoder tokens are 94 blocks of 16, taken at once and kept to the end."""
    run = scenario("openai--whisper-large-v3", blocks=1000, workload=SPEECH, max_model_len=448)
    tables = simulate(run).tables
    assert list(tables.requests["outcome"]) == ["finished"] * 12
    kinds = [g.kv_cache_spec.kind for g in assemble(run).layout.kv_cache_config.kv_cache_groups]
    held = tables.steps[f"held_blocks_g{kinds.index('cross_attention')}"]
    assert list(held) == [94 * count for count in tables.steps["num_running"]]
    assert max(held) == 4 * 94


def test_an_encoder_is_not_cached():
    run = scenario(
        "openai--whisper-large-v3",
        blocks=1000,
        workload=SPEECH,
        max_model_len=448,
        cache={"enable_prefix_caching": True},
    )
    with pytest.raises(ConfigError, match="enable_prefix_caching: True"):
        simulate(run)
