"""MiniMax-Text-01 and M1: lightning (linear) attention, every eighth layer of full attention."""

from __future__ import annotations

from sim.models.layers import LayerSpec
from sim.models.parts import Heads, Structure, counted_dims, read_experts, read_heads, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import attention_of, lightning_layer


def minimax_text_01(reader: ConfigReader) -> Structure:
    """``attn_type_list[i]`` is 0 for lightning, 1 for full attention.

    Source: models/README.md, "MiniMax-Text-01 / M1".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    types = reader.integers("attn_type_list", num_layers, maximum=1)
    experts = read_experts(reader, "num_local_experts", 32, 2)
    mixture = experts.weights(hidden, reader.integer("intermediate_size", 9216))
    mixers = [heads.weights(hidden) if full else _weights(heads, hidden) for full in types]
    weights = [same(sum(mixers)), *([mixture] * num_layers)]
    return Structure(
        layers=tuple(_layer(idx, bool(full), heads) for idx, full in enumerate(types)),
        max_model_len=reader.integer("max_position_embeddings", 10_240_000),
        dims=counted_dims(reader, hidden, num_layers, heads, weights, vocab_size=200_064),
    )


def _layer(idx: int, attends: bool, heads: Heads) -> LayerSpec:
    if attends:
        return attention_of(idx, heads)
    return lightning_layer(idx, heads.num_attention_heads, heads.head_dim)


def _weights(heads: Heads, hidden: int) -> int:
    """Queries, keys, values, the output gate and the way out, all of the queries' width."""
    return 5 * hidden * heads.num_attention_heads * heads.head_dim
