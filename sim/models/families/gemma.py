"""Gemma-2 and Gemma-3: windows that alternate with full attention by the layer's index."""

from __future__ import annotations

from sim.models.parts import (
    Structure,
    attention_layers,
    counted_dims,
    gated_mlp_weights,
    is_periodic_end,
    read_heads,
    same,
    windows_of_types,
)
from sim.models.reader import ConfigReader


def gemma2(reader: ConfigReader) -> Structure:
    """Even layers slide, odd layers are full. Source: models/README.md, "Gemma-2"."""
    windows = _windows(reader, 2)
    return _structure(reader, windows, vocab_size=256_000, max_model_len=8192)


def gemma3_text(reader: ConfigReader) -> Structure:
    """Layer i is full iff (i + 1) is a multiple of the pattern.

    Released files leave out what equals the class defaults: 8 heads, 4 KV heads of 256, pattern
    6, context 131072. Source: models/README.md, "Gemma-3" and "More traps".
    """
    windows = _windows(reader, None)
    return _structure(reader, windows, vocab_size=262_208, max_model_len=131_072)


def gemma3(reader: ConfigReader) -> Structure:
    """The multimodal sizes nest the language model in ``text_config``."""
    return gemma3_text(reader.section("text_config"))


def _windows(reader: ConfigReader, period: int | None) -> list[int | None]:
    """The last layer of each period is full; files saved lately list the layers instead."""
    num_layers = reader.num_layers()
    window = reader.integer("sliding_window", 4096)
    if reader.has("layer_types"):
        return windows_of_types(reader, num_layers, window)
    period = period or reader.integer("sliding_window_pattern", 6)
    return [None if is_periodic_end(idx, period) else window for idx in range(num_layers)]


def _structure(
    reader: ConfigReader, windows: list[int | None], *, vocab_size: int, max_model_len: int
) -> Structure:
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_heads=8, default_kv_heads=4, default_head_dim=256)
    mlp = gated_mlp_weights(hidden, reader.integer("intermediate_size"))
    weights = len(windows) * (heads.weights(hidden) + mlp)
    depth = len(windows)
    dims = counted_dims(
        reader, hidden, depth, heads, [same(weights)], tied=True, vocab_size=vocab_size
    )
    length = reader.integer("max_position_embeddings", max_model_len)
    layers = attention_layers(heads, windows)
    return Structure(layers=layers, max_model_len=length, dims=dims)
