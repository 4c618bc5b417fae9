"""Dense models whose layers are all alike, and the Qwen switch that makes some of them slide."""

from __future__ import annotations

from sim.models.model_config import ModelDims
from sim.models.parts import (
    Heads,
    Structure,
    attention_layers,
    dims_of,
    embedding_weights,
    gated_mlp_weights,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader

WINDOWS_BY_LAYER_TYPE = {"full_attention": False, "sliding_attention": True}


def llama(reader: ConfigReader) -> Structure:
    """Full attention in every layer. Source: models/README.md, "Llama-3.1"."""
    return _dense(reader, [None] * reader.num_layers())


def one_window(reader: ConfigReader) -> Structure:
    """One window for every layer, or none: Mistral and Phi-3.

    A window at least as long as the context is kept: the engine builds sliding specs there too.
    Source: models/README.md, "Mistral-7B-v0.1, Phi-3-mini"; spec/layout.md 15.12.
    """
    window = reader.integer("sliding_window") if reader.has("sliding_window") else None
    return _dense(reader, [window] * reader.num_layers())


def qwen(reader: ConfigReader) -> Structure:
    """Full attention unless ``use_sliding_window`` is on. Source: models/README.md, "Qwen2.5"."""
    return _dense(reader, _qwen_windows(reader))


def qwen_moe(reader: ConfigReader) -> Structure:
    """Qwen-3 with experts in every ``decoder_sparse_step``-th layer."""
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden)
    experts = read_experts(reader, "num_experts", 128, 8)
    moe_width = reader.integer("moe_intermediate_size", 768)
    step = reader.integer("decoder_sparse_step", 1)
    mixture = experts.weights(hidden, moe_width)
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 6144)))
    mlps = [mixture if (idx + 1) % step == 0 else dense for idx in range(num_layers)]
    dims = _dims(reader, hidden, heads, mlps)
    return _structure(reader, heads, _qwen_windows(reader), dims)


def _qwen_windows(reader: ConfigReader) -> list[int | None]:
    """With the switch on, layers from ``max_window_layers`` slide, or as ``layer_types`` says."""
    num_layers = reader.num_layers()
    if not reader.boolean("use_sliding_window", False):
        return [None] * num_layers
    window = reader.integer("sliding_window", 4096)
    if reader.has("layer_types"):
        types = reader.strings("layer_types", num_layers, WINDOWS_BY_LAYER_TYPE)
        return [window if WINDOWS_BY_LAYER_TYPE[kind] else None for kind in types]
    first = reader.integer("max_window_layers", 28, minimum=0)
    return [window if idx >= first else None for idx in range(num_layers)]


def _dense(reader: ConfigReader, windows: list[int | None]) -> Structure:
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden)
    mlp = same(gated_mlp_weights(hidden, reader.integer("intermediate_size")))
    dims = _dims(reader, hidden, heads, [mlp] * len(windows))
    return _structure(reader, heads, windows, dims)


def _dims(
    reader: ConfigReader, hidden: int, heads: Heads, mlps: list[tuple[int, int]]
) -> ModelDims:
    tied = reader.boolean("tie_word_embeddings", False)
    embedding = embedding_weights(reader.integer("vocab_size"), hidden, tied=tied)
    attention = heads.weights(hidden) * len(mlps)
    return dims_of(hidden, len(mlps), heads, [same(embedding), same(attention), *mlps])


def _structure(
    reader: ConfigReader, heads: Heads, windows: list[int | None], dims: ModelDims
) -> Structure:
    length = reader.integer("max_position_embeddings")
    return Structure(attention_layers(heads, windows), length, dims)
