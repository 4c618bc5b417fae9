"""Mutated configs give an answer or an error of lines, never another exception."""

import copy
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.configs_dir import configs_dir
from sim.errors import ConfigError
from sim.layout.plan import LayoutSettings, plan_layout
from sim.layout.report import layout_json
from sim.models import model_from_config

STEMS = [
    "Qwen--Qwen2.5-7B",
    "ai21labs--Jamba-v0.1",
    "google--gemma-2-9b",
    "google--gemma-3-1b-it",
    "google--gemma-3-27b-it",
    "microsoft--Phi-3-mini-4k-instruct",
    "openai--gpt-oss-20b",
]
CONFIGS = [json.loads((configs_dir() / "models" / f"{s}.json").read_text()) for s in STEMS]
ARCHITECTURES = [config["architectures"] for config in CONFIGS]
WANTED = LayoutSettings(kv_cache_memory_bytes=20 * 2**30, max_num_batched_tokens=8192)

SIZES = st.integers(1, 300) | st.sampled_from([2**31, 2**31 + 1, 2**63, 10**30])
VALUES = st.one_of(
    SIZES,
    st.integers(-3, 0),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["auto", "float32", "sliding_attention", [], {}, [[]], ["full_attention"]]),
    st.sampled_from(ARCHITECTURES),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", 3]), max_size=50),
)
FLAGS = ["use_sliding_window", "layer_types", "max_window_layers", "head_dim", "torch_dtype"]
KEYS = sorted({key for config in CONFIGS for key in (*config, *config.get("text_config", ()))})


CHANGES = st.tuples(
    st.sampled_from([*KEYS, *FLAGS]),
    st.sampled_from(["nested", "flat"]),
    st.sampled_from(["set", "set", "set", "remove"]),
    VALUES,
)


def mutated(config, changes):
    config = copy.deepcopy(config)
    for key, place, verb, value in changes:
        nested = config.get("text_config")
        holder = nested if place == "nested" and isinstance(nested, dict) else config
        if verb == "remove":
            holder.pop(key, None)
        else:
            holder[key] = value
    return config


def answer(config):
    try:
        model = model_from_config(config, "mutated")
    except ConfigError as error:
        return error
    if len(model.layers) > 500:
        return model  # planning is tested on small stacks
    try:
        return layout_json(plan_layout(model, WANTED))
    except ConfigError as error:
        return error


@settings(
    max_examples=450, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.lists(CHANGES, min_size=1, max_size=4))
def test_a_mutated_config_is_answered_or_refused(changes):
    for config in CONFIGS:  # 450 times 7 mutated configs
        result = answer(mutated(config, changes))
        if isinstance(result, ConfigError):
            assert 1 <= len(result.lines()) <= 10
            assert all("\n" not in line for line in result.lines())
