"""Jamba: Mamba-1 layers with attention at a fixed period, experts at another."""

from __future__ import annotations

from sim.models.layers import LayerSpec
from sim.models.parts import (
    Heads,
    Structure,
    counted_dims,
    gated_mlp_weights,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader
from sim.models.recurrent import Mamba1, attention_of, mamba_name, read_chunk_size, read_mamba1


def jamba(reader: ConfigReader) -> Structure:
    """Layer i attends iff i % attn_layer_period == attn_layer_offset, else it is Mamba-1.

    Source: models/README.md, "Jamba"; class defaults of the original Jamba where a key is absent.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    mixer = read_mamba1(reader, hidden)
    attends = _periodic(reader, "attn_layer", 8, 4, num_layers)
    mixers = [heads.weights(hidden) if full else mixer.weights(hidden) for full in attends]
    weights = [same(sum(mixers)), *_mlp_weights(reader, hidden, num_layers)]
    return Structure(
        layers=tuple(_layer(idx, full, heads, mixer) for idx, full in enumerate(attends)),
        max_model_len=reader.integer("max_position_embeddings", 262_144),
        dims=counted_dims(reader, hidden, num_layers, heads, weights, vocab_size=65_536),
        supports_mamba_all=True,
        mamba_chunk_size=read_chunk_size(reader),
    )


def _layer(idx: int, attends: bool, heads: Heads, mixer: Mamba1) -> LayerSpec:
    return attention_of(idx, heads) if attends else mixer.layer(mamba_name(idx))


def _periodic(
    reader: ConfigReader, what: str, period: int, offset: int, num_layers: int
) -> list[bool]:
    """True for layers at ``{what}_offset`` of each ``{what}_period``."""
    period = reader.integer(f"{what}_period", period)
    offset = reader.integer(f"{what}_offset", offset, minimum=0)
    reader.check(offset < period, f"{what}_offset", offset, f"less than {what}_period ({period})")
    return [idx % period == offset for idx in range(num_layers)]


def _mlp_weights(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    width = reader.integer("intermediate_size", 14_336)
    experts = read_experts(reader, "num_experts", 16, 2)
    dense = same(gated_mlp_weights(hidden, width))
    mixture = dense if experts.num_experts == 1 else experts.weights(hidden, width)
    sparse = _periodic(reader, "expert_layer", 2, 1, num_layers)
    return [mixture if is_sparse else dense for is_sparse in sparse]
