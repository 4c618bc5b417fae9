"""Every carried model against the facts collected beside it from public sources."""

import json
import re
from itertools import groupby

import pytest

from sim.configs_dir import configs_dir
from sim.models import known_models, load_model, model_from_config

BF16 = {"conv": 2, "ssm": 2}
DTYPE_BYTES = {None: 2, "bfloat16": 2, "float16": 2, "float32": 4}
# its experts are one each, which the independent count gives a router and ours does not
WITHOUT_ROUTER = "ai21labs--AI21-Jamba-Reasoning-3B"


def read(stem):
    return json.loads((configs_dir() / "models" / f"{stem}.json").read_text())


def block_of(layer_name):
    return int(re.match(r"[LD](\d+)", layer_name)[1])


def kinds_by_block(model, *, never_binds):
    """Sorted cache kinds of each block; a window that never binds is full in the facts."""
    blocks = [[] for _ in range(model.dims.num_hidden_layers)]
    for layer in model.layers:
        blocks[block_of(layer.name)].append("full" if never_binds else layer.kind)
    for reader in model.kv_shared_target:
        assert blocks[block_of(reader)] == []
        blocks[block_of(reader)].append("shared")
    return ["+".join(sorted(kinds)) or "none" for kinds in blocks]


def sorted_kinds(text):
    return "+".join(sorted(text.split("+")))


def default_state_bytes(model):
    """Element sizes with every setting on auto."""
    return {"conv": 2, "ssm": DTYPE_BYTES[model.mamba_ssm_cache_dtype]}


def test_all_models_are_carried():
    assert len(known_models()) == 91


@pytest.mark.parametrize("stem", known_models())
def test_layers_are_those_of_the_facts(stem):
    expected = read(stem)["_facts"]["expected"]
    kinds = kinds_by_block(load_model(stem), never_binds="window_never_binds" in expected)
    runs = [(len(list(run)), kind) for kind, run in groupby(kinds)]
    given = [entry.split("x", 1) for entry in expected["layer_sequence"].split()]
    assert runs == [(int(count), sorted_kinds(kind)) for count, kind in given]
    by_type = {sorted_kinds(kind): count for kind, count in expected["layers_by_type"].items()}
    assert {kind: kinds.count(kind) for kind in kinds} == by_type


@pytest.mark.parametrize("stem", known_models())
def test_kv_bytes_per_token_are_those_of_the_facts(stem):
    model, expected = load_model(stem), read(stem)["_facts"]["expected"]
    never_binds = "window_never_binds" in expected
    found = {}
    for layer in model.layers:
        if hasattr(layer, "kv_bytes_per_token"):
            kind = "full" if never_binds else layer.kind
            found.setdefault(kind, set()).add(layer.kv_bytes_per_token(model.dtype_bytes))
    assert found == {k: {v} for k, v in expected["kv_bytes_per_token_per_layer"].items()}


@pytest.mark.parametrize("stem", known_models())
def test_states_are_those_of_the_facts(stem):
    model, expected = load_model(stem), read(stem)["_facts"]["expected"]
    states = {layer.kind: layer for layer in model.layers if hasattr(layer, "tensors")}
    assert set(states) == set(expected["state_bytes_per_layer"])
    for kind, fact in expected["state_bytes_per_layer"].items():
        alike = {layer.tensors for layer in model.layers if layer.kind == kind}
        assert len(alike) == 1
        given = [fact["conv_shape"], fact["state_shape"]]
        assert [list(tensor.shape) for tensor in states[kind].tensors] == [s for s in given if s]
        assert states[kind].state_bytes(default_state_bytes(model)) == fact["vllm_default_dtypes"]
        if all(tensor.dtype_bytes is None for tensor in states[kind].tensors):
            assert states[kind].state_bytes(BF16) == fact["all_bf16"]


@pytest.mark.parametrize("stem", known_models())
def test_shared_caches_are_those_of_the_facts(stem):
    shared = load_model(stem).kv_shared_target
    found = {str(block_of(reader)): block_of(target) for reader, target in shared.items()}
    assert found == read(stem)["_facts"]["expected"].get("kv_shared_target", {})


@pytest.mark.parametrize("stem", known_models())
def test_layer_names_are_unique_and_shared_targets_own_a_cache(stem):
    model = load_model(stem)
    names = [layer.name for layer in model.layers + model.mtp_layers]
    assert len(set(names)) == len(names)
    assert set(model.kv_shared_target.values()) <= {layer.name for layer in model.layers}


def test_a_window_that_never_binds_is_still_a_window():
    bound = {s: read(s)["_facts"]["expected"].get("window_never_binds") for s in known_models()}
    unbound = {stem: fact["window"] for stem, fact in bound.items() if fact}
    assert len(unbound) == 2  # Phi-4-mini and the flat Ministral
    for stem, window in unbound.items():
        model = load_model(stem)
        assert {layer.sliding_window for layer in model.layers} == {window}
        assert window >= model.max_model_len


def counted(stem):
    data = read(stem)
    return data.pop("_facts"), model_from_config(data, stem).dims


@pytest.mark.parametrize(
    "stem", [s for s in known_models() if read(s)["_facts"]["params_computed"] is not None]
)
def test_counted_parameters_equal_the_independent_count(stem):
    facts, dims = counted(stem)
    assert dims.parameters_from == "counted"
    tolerance = 2e-5 if stem == WITHOUT_ROUTER else 0
    independent = facts["params_computed"]
    assert dims.num_parameters_total == pytest.approx(independent["total"], rel=tolerance)
    assert dims.num_parameters_active == pytest.approx(independent["active"], rel=tolerance)


@pytest.mark.parametrize(
    ("stem", "tolerance"),
    [
        ("Zyphra--Zamba2-7B", 0.01),
        ("Zyphra--Zamba2-2.7B", 0.015),
        ("Zyphra--Zamba2-1.2B", 0.02),  # has adapters in its attention, which the file leaves out
        ("deepseek-ai--DeepSeek-V4-Flash", 0.01),
        ("deepseek-ai--DeepSeek-V4-Pro", 0.01),
        ("google--recurrentgemma-2b", 0.01),
        ("google--recurrentgemma-9b", 0.01),
        ("microsoft--Phi-4-mini-flash-reasoning", 0.01),
        ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B", 0.01),
        ("openai--whisper-large-v3", 0.01),
    ],
)
def test_counts_without_an_independent_one_are_near_the_published(stem, tolerance):
    facts, dims = counted(stem)
    assert facts["params_computed"] is None
    assert dims.num_parameters_total == pytest.approx(facts["params_total"], rel=tolerance)
    assert dims.num_parameters_active == pytest.approx(facts["params_active"], rel=tolerance)


@pytest.mark.parametrize("stem", known_models())
def test_published_parameters_are_preferred(stem):
    facts, dims = read(stem)["_facts"], load_model(stem).dims
    if facts["params_total"] is None:
        assert dims.parameters_from == "counted"
        return
    assert dims.num_parameters_total == facts["params_total"]
    assert dims.num_parameters_active == facts["params_active"]
    assert dims.parameters_from == "published"


ASSUMED_LENGTHS = {
    "google--recurrentgemma-2b": 8192,
    "google--recurrentgemma-9b": 8192,
    "mistralai--Mamba-Codestral-7B-v0.1": 2048,
    "tiiuae--falcon-mamba-7b": 2048,
}
LENGTH_KEYS = ("max_position_embeddings", "model_max_length", "max_target_positions")


@pytest.mark.parametrize("stem", known_models())
def test_context_length_and_dims_are_the_file_s(stem):
    data, model = read(stem), load_model(stem)
    text = data.get("text_config", data)
    lengths = [text[key] for key in LENGTH_KEYS if key in text]
    assert [model.max_model_len] == (lengths or [ASSUMED_LENGTHS[stem]])
    assert model.max_model_len_is_assumed == (stem in ASSUMED_LENGTHS)
    assert model.dims.hidden_size == text.get("hidden_size", text.get("d_model"))
    assert model.dims.num_hidden_layers == text["num_hidden_layers"]
    if "num_attention_heads" in text:
        assert model.dims.num_attention_heads == text["num_attention_heads"]
    assert model.dtype_bytes == 2
