"""Phi-4-mini-flash (SambaY): the upper half reads the one full cache of the middle."""

from __future__ import annotations

from sim.models.layers import LayerSpec
from sim.models.parts import Heads, Structure, counted_dims, gated_mlp_weights, read_heads, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import Mamba1, attention_of, mamba_name, read_chunk_size, read_mamba1


def phi4_flash(reader: ConfigReader) -> Structure:
    """Up to half the depth Mamba-1 and sliding layers take turns; one full layer follows.

    Above it, even layers own nothing (gated memory) and odd layers read the full layer's cache.
    Source: models/README.md, "Phi-4-mini-flash".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    half = num_layers // 2
    valid = num_layers % 4 == 0
    reader.check(valid, "num_hidden_layers", num_layers, "a multiple of 4: the middle is even")
    heads = read_heads(reader, hidden)
    mixer = read_mamba1(reader, hidden)
    window = reader.integer("sliding_window", 512)
    full = half + 1
    readers = range(full + 2, num_layers, 2)
    weights = [same(_weights(reader, hidden, heads, mixer, num_layers))]
    return Structure(
        layers=tuple(_layer(idx, full, heads, mixer, window) for idx in range(full + 1)),
        kv_shared_target={f"L{idx}.attn": f"L{full}.attn" for idx in readers},
        max_model_len=reader.integer("max_position_embeddings", 262_144),
        dims=counted_dims(
            reader, hidden, num_layers, heads, weights, tied=True, vocab_size=200_064
        ),
        mamba_chunk_size=read_chunk_size(reader),
    )


def _layer(idx: int, full: int, heads: Heads, mixer: Mamba1, window: int) -> LayerSpec:
    if idx % 2 == 0:
        return mixer.layer(mamba_name(idx))
    return attention_of(idx, heads, None if idx == full else window)


def _weights(
    reader: ConfigReader, hidden: int, heads: Heads, mixer: Mamba1, num_layers: int
) -> int:
    """Gated memories have a way in and a way out, readers of the cache queries and a way out."""
    half = num_layers // 2
    num_mamba, num_attention = half // 2 + 1, half // 2 + 1
    num_memories = num_layers // 2 - num_mamba
    num_readers = num_layers // 2 - num_attention
    reading = 2 * hidden * heads.num_attention_heads * heads.head_dim
    mlp = gated_mlp_weights(hidden, reader.integer("intermediate_size"))
    owning = num_mamba * mixer.weights(hidden) + num_attention * heads.weights(hidden)
    upper = num_memories * 2 * hidden * mixer.width + num_readers * reading
    return owning + upper + num_layers * mlp
