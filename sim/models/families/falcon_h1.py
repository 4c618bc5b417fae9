"""Falcon-H1: attention and Mamba-2 side by side in every layer."""

from __future__ import annotations

from sim.models.layers import LayerSpec
from sim.models.parts import Structure, counted_dims, gated_mlp_weights, read_heads, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import attention_of, mamba_name, read_chunk_size, read_mamba2


def falcon_h1(reader: ConfigReader) -> Structure:
    """Both caches in every layer; the inner width is ``mamba_d_ssm``, or expand times hidden.

    Source: models/README.md, "Falcon-H1"; spec/layout.md 4 and 15.2.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    width = hidden * reader.integer("mamba_expand", 2)
    if reader.has("mamba_d_ssm"):
        width = reader.integer("mamba_d_ssm")
    mixer = read_mamba2(reader, width, num_heads=128, num_groups=1, state=256)
    mlp = gated_mlp_weights(hidden, reader.integer("intermediate_size", 14_336))
    block = heads.weights(hidden) + mixer.weights(hidden) + mlp
    layers: list[LayerSpec] = []
    for idx in range(num_layers):
        layers += [mixer.layer(mamba_name(idx)), attention_of(idx, heads)]
    return Structure(
        layers=tuple(layers),
        max_model_len=reader.integer("max_position_embeddings", 8192),
        dims=counted_dims(
            reader, hidden, num_layers, heads, [same(block * num_layers)], vocab_size=128_000
        ),
        supports_mamba_all=True,
        mamba_chunk_size=read_chunk_size(reader),
    )
