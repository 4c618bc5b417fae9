"""Llama-4: chunks of local attention, every fourth layer full, experts in some layers."""

from __future__ import annotations

from sim.models.layers import AttentionLayer
from sim.models.parts import (
    Heads,
    Structure,
    counted_dims,
    gated_mlp_weights,
    is_periodic_end,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader

_FULL_EVERY = 4


def llama4(reader: ConfigReader) -> Structure:
    """Layer i is chunked iff ``no_rope_layers[i]`` is not zero.

    An empty or absent list means that every fourth layer is full.
    Source: models/README.md, "Llama-4".
    """
    text = reader.text()
    num_layers = text.num_layers()
    hidden = text.integer("hidden_size")
    heads = read_heads(text, hidden, default_heads=40, default_kv_heads=8, default_head_dim=128)
    chunk = text.integer("attention_chunk_size", 8192)
    weights = [same(heads.weights(hidden) * num_layers), *_mlps(text, hidden, num_layers)]
    chunks = [chunk if is_chunked else None for is_chunked in _chunked(text, num_layers)]
    return Structure(
        layers=tuple(_layer(idx, heads, chunk) for idx, chunk in enumerate(chunks)),
        max_model_len=text.integer("max_position_embeddings", 131_072),
        dims=counted_dims(text, hidden, num_layers, heads, weights, vocab_size=202_048),
        attention_chunk_size=chunk,
    )


def _layer(idx: int, heads: Heads, chunk: int | None) -> AttentionLayer:
    return AttentionLayer(
        name=f"L{idx}",
        num_kv_heads=heads.num_kv_heads,
        head_size=heads.head_dim,
        attention_chunk_size=chunk,
    )


def _chunked(reader: ConfigReader, num_layers: int) -> list[bool]:
    if reader.raw("no_rope_layers") in (None, []):
        period = reader.integer("no_rope_layer_interval", _FULL_EVERY)
        return [not is_periodic_end(idx, period) for idx in range(num_layers)]
    return [value != 0 for value in reader.integers("no_rope_layers", num_layers, maximum=1)]


def _mlps(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    """Experts in the last layer of each period, or as listed; each with one shared expert."""
    width = reader.integer("intermediate_size", 8192)
    experts = read_experts(reader, "num_local_experts", 16, 1)
    mixture = experts.weights_with_shared(hidden, width, width)
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size_mlp", 16_384)))
    if reader.has("moe_layers"):
        sparse = reader.indices("moe_layers", num_layers)
        return [mixture if idx in sparse else dense for idx in range(num_layers)]
    period = reader.integer("interleave_moe_layer_step", 1)
    return [mixture if is_periodic_end(idx, period) else dense for idx in range(num_layers)]
