"""Small configs made by hand, for the rules of the families."""

import pytest

from sim.errors import ConfigError
from sim.models import model_from_config

DENSE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "max_position_embeddings": 1024,
    "vocab_size": 100,
}


def build(architecture, **changes):
    fields = {"architectures": [architecture], **DENSE, **changes}
    present = {key: value for key, value in fields.items() if value != "absent"}
    return model_from_config(present, "made-by-hand")


def windows(model):
    return [layer.sliding_window for layer in model.layers]


def problem_keys(caught):
    return [problem.key for problem in caught.value.problems]


def kinds(model):
    return [layer.kind for layer in model.layers]


def refused(architecture, **changes):
    """Return the keys that are named when a config is refused."""
    with pytest.raises(ConfigError) as caught:
        build(architecture, **changes)
    return [key.removeprefix("config.json:") for key in problem_keys(caught)]
