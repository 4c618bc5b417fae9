"""Mutated configs give a model or an error of lines, never another exception."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import ConfigError
from sim.models import model_from_config, shard, split_pipeline, with_speculation

from .mutations import CHANGE_LISTS, CONFIGS, mutated

METHODS = ["ngram", "mtp", "eagle", "extract_hidden_states"]


def answer(config):
    try:
        return model_from_config(config, "mutated")
    except ConfigError as error:
        return error


def check_error(error):
    lines = error.lines()
    assert 1 <= len(lines) <= 10
    assert all("\n" not in line for line in lines)


def check_layer(layer):
    if hasattr(layer, "tensors"):
        assert all(size >= 1 for tensor in layer.tensors for size in tensor.shape)
    else:
        assert layer.kv_bytes_per_token(2) >= 1


def check_model(model):
    names = [layer.name for layer in model.layers + model.mtp_layers]
    assert len(set(names)) == len(names)
    assert set(model.kv_shared_target.values()) <= set(names)
    assert model.dims.num_parameters_total >= model.dims.num_parameters_active >= 1
    for layer in {type(layer): layer for layer in model.layers}.values():
        check_layer(layer)


def check_use(model, ranks, method, tokens):
    """A model that was read can be divided, sped up and split, or refuses in lines."""
    half = model.dims.num_hidden_layers // 2
    try:
        rank = shard(with_speculation(model, method, tokens), ranks)
        split_pipeline(rank, split_at=[half])
    except ConfigError as error:
        check_error(error)
    else:
        check_model(rank)


@pytest.mark.slow
@settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    CHANGE_LISTS,
    st.sampled_from([1, 2, 3, 8, 64]),
    st.sampled_from(METHODS),
    st.integers(0, 4),
)
def test_a_mutated_config_is_read_or_refused(changes, ranks, method, tokens):
    for config in CONFIGS.values():  # 120 times 91 mutated configs
        result = answer(mutated(config, changes))
        if isinstance(result, ConfigError):
            check_error(result)
        else:
            check_model(result)
            check_use(result, ranks, method, tokens)
