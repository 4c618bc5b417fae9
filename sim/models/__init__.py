"""Models: a Hugging Face ``config.json`` to the ordered layers that own a cache."""

from __future__ import annotations

from dataclasses import fields, replace
from math import isfinite
from typing import Any

from sim.errors import ConfigError
from sim.models.architectures import ARCHITECTURES
from sim.models.files import find_model, known_models, model_name, read_json
from sim.models.model_config import (
    AttentionLayer,
    LayerSpec,
    ModelConfig,
    ModelDims,
    RecurrentLayer,
)
from sim.models.pipeline import split_pipeline
from sim.models.reader import ConfigReader
from sim.models.sharding import shard
from sim.models.speculation import SPECULATIVE_METHODS, with_speculation

__all__ = [
    "ARCHITECTURES",
    "SPECULATIVE_METHODS",
    "AttentionLayer",
    "LayerSpec",
    "ModelConfig",
    "ModelDims",
    "RecurrentLayer",
    "known_models",
    "load_model",
    "model_from_config",
    "shard",
    "split_pipeline",
    "with_speculation",
]

_DTYPES = ("auto", "bfloat16", "float16", "float32")


def load_model(name_or_path: str) -> ModelConfig:
    """Return the model of a file stem, a hub id, or a path to a ``config.json`` or its folder.

    Raises
    ------
    ConfigError
        Unknown name; unreadable file; an architecture without a rule; wrong fields, one line each.
    """
    path = find_model(name_or_path)
    return model_from_config(read_json(path), model_name(path), origin=path.name)


def model_from_config(data: dict[str, Any], name: str, origin: str = "config.json") -> ModelConfig:
    """Return the model that a parsed ``config.json`` describes; ``origin`` names it in errors."""
    reader = ConfigReader(data, origin)
    architecture = _architecture(reader)
    structure = ARCHITECTURES[architecture](reader)
    dtype_bytes = _dtype_bytes(reader)
    reader.finish()
    described = {item.name: getattr(structure, item.name) for item in fields(structure)}
    dims = _with_published(structure.dims, data.get("_facts"))
    return ModelConfig(
        **{**described, "dims": dims},
        name=name,
        architecture=architecture,
        dtype_bytes=dtype_bytes,
        defaults_taken=tuple(dict.fromkeys(reader.defaults_taken)),
    )


def _architecture(reader: ConfigReader) -> str:
    names = reader.raw("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        shown = "missing" if names is None else names
        raise ConfigError.one(reader.key("architectures"), shown, "a list with one class name")
    if names[0] not in ARCHITECTURES:
        raise ConfigError.unknown(reader.key("architectures"), names[0], ARCHITECTURES)
    return names[0]


def _dtype_bytes(reader: ConfigReader) -> int:
    """Element size of the model's dtype; a float32 or silent file is served in bfloat16."""
    for key in ("dtype", "torch_dtype"):
        if reader.has(key):
            reader.choice(key, _DTYPES, "bfloat16")
    return 2


def _with_published(dims: ModelDims, facts: Any) -> ModelDims:
    """Prefer published parameter counts where the file carries both of them."""
    if not isinstance(facts, dict):
        return dims
    total, active = facts.get("params_total"), facts.get("params_active")
    if not (_is_count(total) and _is_count(active) and active <= total):
        return dims
    return replace(
        dims,
        num_parameters_total=int(total),
        num_parameters_active=int(active),
        parameters_from="published",
    )


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isfinite(value) and value >= 1
