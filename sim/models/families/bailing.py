"""Ring and Ling linear: lightning attention in groups that end with a layer of another kind."""

from __future__ import annotations

from collections.abc import Sequence

from sim.models.latent import read_latent
from sim.models.layers import LayerSpec
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
from sim.models.recurrent import attention_of, lightning_layer


def bailing_linear_v2(reader: ConfigReader) -> Structure:
    """The last layer of each group, and each layer of an unfinished group, is full attention.

    Source: models/README.md, "Ring / Ling linear".
    """
    num_layers, hidden = reader.num_layers(), reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=4, default_head_dim=128)
    size = reader.integer("layer_group_size", 5)
    complete = num_layers // size * size
    attends = [is_periodic_end(idx, size) or idx >= complete for idx in range(num_layers)]
    layers = [
        attention_of(idx, heads) if full else _lightning(idx, heads)
        for idx, full in enumerate(attends)
    ]
    return _structure(reader, hidden, heads, layers, attends, heads.weights(hidden))


def bailing_v2_5(reader: ConfigReader) -> Structure:
    """The last layer of each group is latent attention, all others are lightning.

    Source: models/README.md, "Ring / Ling linear".
    """
    num_layers, hidden = reader.num_layers(), reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_head_dim=128)
    latent = read_latent(reader, q_lora_rank=1536)
    size = reader.integer("layer_group_size", 8)
    attends = [is_periodic_end(idx, size) for idx in range(num_layers)]
    layers = [
        latent.layer(f"L{idx}.attn") if full else _lightning(idx, heads)
        for idx, full in enumerate(attends)
    ]
    return _structure(reader, hidden, heads, layers, attends, latent.weights(hidden))


def _lightning(idx: int, heads: Heads) -> LayerSpec:
    return lightning_layer(idx, heads.num_attention_heads, heads.head_dim)


def _structure(
    reader: ConfigReader,
    hidden: int,
    heads: Heads,
    layers: Sequence[LayerSpec],
    attends: Sequence[bool],
    attention_weights: int,
) -> Structure:
    linear = 5 * hidden * heads.num_attention_heads * heads.head_dim
    mixers = sum(attention_weights if full else linear for full in attends)
    weights = [same(mixers), *_mlps(reader, hidden, len(attends))]
    return Structure(
        layers=tuple(layers),
        max_model_len=reader.integer("max_position_embeddings", 32_768),
        dims=counted_dims(reader, hidden, len(attends), heads, weights, vocab_size=157_184),
    )


def _mlps(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    experts = read_experts(reader, "num_experts", 256, 8)
    width = reader.integer("moe_intermediate_size")
    shared_width = reader.integer("moe_shared_expert_intermediate_size", width)
    shared = shared_width * reader.integer("num_shared_experts", 1, minimum=0)
    mixture = experts.weights_with_shared(hidden, width, shared)
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size")))
    first = reader.integer("first_k_dense_replace", 0, minimum=0)
    return [dense if idx < first else mixture for idx in range(num_layers)]
