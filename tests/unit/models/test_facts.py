"""Every carried model against the facts collected beside it from public sources."""

import json
from itertools import groupby

import pytest

from sim.configs_dir import configs_dir
from sim.models import known_models, load_model, model_from_config

STATE_BYTES = {"conv": 2, "ssm": 2}


def read(stem):
    return json.loads((configs_dir() / "models" / f"{stem}.json").read_text())


def kinds_of(model, expected):
    """Kinds in order; a window that never binds counts as full in the facts, sliding in ours."""
    never_binds = "window_never_binds" in expected
    return ["full" if never_binds else layer.kind for layer in model.layers]


def test_all_models_of_the_families_are_carried():
    assert len(known_models()) == 24


@pytest.mark.parametrize("stem", known_models())
def test_layers_are_those_of_the_facts(stem):
    expected = read(stem)["_facts"]["expected"]
    kinds = kinds_of(load_model(stem), expected)
    runs = " ".join(f"{len(list(run))}x{kind}" for kind, run in groupby(kinds))
    assert runs == expected["layer_sequence"]
    assert {kind: kinds.count(kind) for kind in kinds} == expected["layers_by_type"]


@pytest.mark.parametrize("stem", known_models())
def test_bytes_per_layer_are_those_of_the_facts(stem):
    model, expected = load_model(stem), read(stem)["_facts"]["expected"]
    kv_bytes, state_bytes = {}, {}
    for kind, layer in zip(kinds_of(model, expected), model.layers, strict=True):
        if hasattr(layer, "tensors"):
            state_bytes.setdefault(kind, set()).add(layer.state_bytes(STATE_BYTES))
        else:
            kv_bytes.setdefault(kind, set()).add(layer.kv_bytes_per_token(model.dtype_bytes))
    assert kv_bytes == {k: {v} for k, v in expected["kv_bytes_per_token_per_layer"].items()}
    states = expected["state_bytes_per_layer"]
    assert state_bytes == {k: {v["vllm_default_dtypes"]} for k, v in states.items()}


def test_a_window_that_never_binds_is_still_a_window():
    bound = {s: read(s)["_facts"]["expected"].get("window_never_binds") for s in known_models()}
    unbound = {stem: fact["window"] for stem, fact in bound.items() if fact}
    assert len(unbound) == 2  # Phi-4-mini and the flat Ministral
    for stem, window in unbound.items():
        model = load_model(stem)
        assert {layer.sliding_window for layer in model.layers} == {window}
        assert window >= model.max_model_len


@pytest.mark.parametrize("stem", known_models())
def test_counted_parameters_equal_the_independent_count(stem):
    data = read(stem)
    computed = data.pop("_facts")["params_computed"]
    model = model_from_config(data, stem)
    # the independent count takes some of Mamba's vectors along, ours counts matrices only
    tolerance = 1e-4 if model.has_recurrent else 0
    dims = model.dims
    assert dims.num_parameters_total == pytest.approx(computed["total"], rel=tolerance)
    assert dims.num_parameters_active == pytest.approx(computed["active"], rel=tolerance)
    assert dims.parameters_from == "counted"


@pytest.mark.parametrize("stem", known_models())
def test_published_parameters_are_preferred(stem):
    facts, dims = read(stem)["_facts"], load_model(stem).dims
    assert dims.num_parameters_total == facts["params_total"]
    assert dims.num_parameters_active == facts["params_active"]
    assert dims.parameters_from == "published"


@pytest.mark.parametrize("stem", known_models())
def test_context_length_and_dims_are_the_file_s(stem):
    data, model = read(stem), load_model(stem)
    text = data.get("text_config", data)
    assert model.max_model_len == text["max_position_embeddings"]
    assert model.dims.hidden_size == text["hidden_size"]
    assert model.dims.num_hidden_layers == text["num_hidden_layers"]
    assert model.dims.num_attention_heads == text["num_attention_heads"]
    assert model.dtype_bytes == 2
