"""gpt-oss: even layers slide, every layer is a mixture of experts."""

from __future__ import annotations

from dataclasses import replace

from sim.models.model_config import ModelDims
from sim.models.parts import (
    Structure,
    attention_layers,
    counted_dims,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader

MXFP4_BYTES = 17 / 32
"""Four bits for each weight and one byte for the scale of each 32."""


def gpt_oss(reader: ConfigReader) -> Structure:
    """Even layers slide; the engine goes by the index and ignores ``layer_types``.

    Source: models/README.md, "gpt-oss".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_heads=64, default_kv_heads=8, default_head_dim=64)
    window = reader.integer("sliding_window", 128)
    experts = read_experts(reader, "num_local_experts", 128, 4)
    mixture = experts.weights(hidden, reader.integer("intermediate_size", 2880))
    weights = [same(num_layers * heads.weights(hidden)), *([mixture] * num_layers)]
    windows = [None if idx % 2 else window for idx in range(num_layers)]
    dims = counted_dims(reader, hidden, num_layers, heads, weights, vocab_size=201_088)
    return Structure(
        layers=attention_layers(heads, windows),
        max_model_len=reader.integer("max_position_embeddings", 131_072),
        dims=_stored(dims, num_layers * (mixture[0] - hidden * experts.num_experts)),
    )


def _stored(dims: ModelDims, expert_weights: int) -> ModelDims:
    """Return the sizes with the released checkpoint's bytes: experts in MXFP4, the rest in bf16.

    Source: models/README.md ("Experts ship in MXFP4"), checked against the released sizes.
    """
    total = dims.num_parameters_total
    stored = expert_weights * MXFP4_BYTES + (total - expert_weights) * 2
    return replace(dims, weight_bytes_per_parameter=stored / total)
