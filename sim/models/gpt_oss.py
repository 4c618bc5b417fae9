"""gpt-oss: even layers slide, every layer is a mixture of experts."""

from __future__ import annotations

from sim.models.parts import (
    Structure,
    attention_layers,
    dims_of,
    embedding_weights,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader


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
    tied = reader.boolean("tie_word_embeddings", False)
    embedding = embedding_weights(reader.integer("vocab_size", 201_088), hidden, tied=tied)
    attention = num_layers * heads.weights(hidden)
    weights = [same(embedding), same(attention), *([mixture] * num_layers)]
    windows = [None if idx % 2 else window for idx in range(num_layers)]
    return Structure(
        layers=attention_layers(heads, windows),
        max_model_len=reader.integer("max_position_embeddings", 131_072),
        dims=dims_of(hidden, num_layers, heads, weights),
    )
