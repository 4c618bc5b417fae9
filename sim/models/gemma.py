"""Gemma-2 and Gemma-3: windows that alternate with full attention by the layer's index."""

from __future__ import annotations

from sim.models.parts import (
    Structure,
    attention_layers,
    dims_of,
    embedding_weights,
    gated_mlp_weights,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader


def gemma2(reader: ConfigReader) -> Structure:
    """Even layers slide, odd layers are full. Source: models/README.md, "Gemma-2"."""
    window = reader.integer("sliding_window", 4096)
    windows = [None if idx % 2 else window for idx in range(reader.num_layers())]
    return _structure(reader, windows, vocab_size=256_000, max_model_len=8192)


def gemma3_text(reader: ConfigReader) -> Structure:
    """Layer i is full iff (i + 1) is a multiple of the pattern.

    Released files leave out what equals the class defaults: 8 heads, 4 KV heads of 256, pattern
    6, context 131072. Source: models/README.md, "Gemma-3" and "More traps".
    """
    window = reader.integer("sliding_window", 4096)
    pattern = reader.integer("sliding_window_pattern", 6)
    windows = [None if (idx + 1) % pattern == 0 else window for idx in range(reader.num_layers())]
    return _structure(reader, windows, vocab_size=262_208, max_model_len=131_072)


def gemma3(reader: ConfigReader) -> Structure:
    """The multimodal sizes nest the language model in ``text_config``."""
    return gemma3_text(reader.section("text_config"))


def _structure(
    reader: ConfigReader, windows: list[int | None], *, vocab_size: int, max_model_len: int
) -> Structure:
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_heads=8, default_kv_heads=4, default_head_dim=256)
    tied = reader.boolean("tie_word_embeddings", True)
    vocabulary = reader.integer("vocab_size", vocab_size)
    mlp = gated_mlp_weights(hidden, reader.integer("intermediate_size"))
    weights = len(windows) * (heads.weights(hidden) + mlp)
    embedding = embedding_weights(vocabulary, hidden, tied=tied)
    dims = dims_of(hidden, len(windows), heads, [same(embedding), same(weights)])
    length = reader.integer("max_position_embeddings", max_model_len)
    return Structure(attention_layers(heads, windows), length, dims)
