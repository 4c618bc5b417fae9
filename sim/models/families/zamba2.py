"""Zamba2: a Mamba-2 state in every layer, shared attention beside some of them."""

from __future__ import annotations

from sim.models.layers import LayerSpec
from sim.models.parts import Heads, Structure, counted_dims, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import Mamba2, attention_of, mamba_name, read_chunk_size

_TYPES = {"mamba": False, "hybrid": True, "linear_attention": False}


def zamba2(reader: ConfigReader) -> Structure:
    """Layers of ``hybrid_layer_ids`` have a full-attention cache beside the state.

    Attention weights are shared between such layers, caches are not. Attention reads the hidden
    state and the embedding side by side, so its heads have twice the usual size.
    Source: models/README.md, "Zamba2"; spec/layout.md 15.2 for the order of the two.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = _read_heads(reader, hidden)
    mixer = _read_mixer(reader, hidden)
    attends = _hybrid_layers(reader, num_layers)
    layers: list[LayerSpec] = []
    for idx in range(num_layers):
        layers.append(mixer.layer(mamba_name(idx)))
        if idx in attends:
            layers.append(attention_of(idx, heads))
    weights = [same(_weights(reader, hidden, heads, mixer, num_layers, len(attends)))]
    return Structure(
        layers=tuple(layers),
        max_model_len=reader.integer("max_position_embeddings", 4096),
        dims=counted_dims(reader, hidden, num_layers, heads, weights, tied=True, vocab_size=32_000),
        supports_mamba_all=True,
        mamba_chunk_size=read_chunk_size(reader),
    )


def _read_heads(reader: ConfigReader, hidden: int) -> Heads:
    heads = reader.integer("num_attention_heads", 32)
    kv_heads = reader.integer("num_key_value_heads", heads)
    allowed = f"a divisor of num_attention_heads ({heads})"
    reader.check(heads % kv_heads == 0, "num_key_value_heads", kv_heads, allowed)
    head_dim = reader.integer("attention_head_dim", max(2 * hidden // heads, 1))
    return Heads(heads, kv_heads, head_dim)


def _read_mixer(reader: ConfigReader, hidden: int) -> Mamba2:
    width = hidden * reader.integer("mamba_expand", 2)
    heads = reader.integer("n_mamba_heads", 8)
    head_dim = reader.integer("mamba_headdim", max(width // heads, 1))
    filled = f"a size with which {heads} heads fill the {width} inner channels"
    reader.check(heads * head_dim == width, "mamba_headdim", head_dim, filled)
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        num_groups=reader.integer("mamba_ngroups", 1),
        state=reader.integer("mamba_d_state", 64),
        conv=reader.integer("mamba_d_conv", 4, minimum=2),
    )


def _hybrid_layers(reader: ConfigReader, num_layers: int) -> set[int]:
    if reader.has("hybrid_layer_ids"):
        return reader.indices("hybrid_layer_ids", num_layers)
    key = reader.first_of("layers_block_type", "layer_types")
    types = reader.strings(key, num_layers, _TYPES)
    return {idx for idx, kind in enumerate(types) if _TYPES[kind]}


def _weights(
    reader: ConfigReader, hidden: int, heads: Heads, mixer: Mamba2, depth: int, num_hybrid: int
) -> int:
    """States of all layers, shared blocks, and what each use of a block adds.

    A use adds a projection of its own and a low-rank change of the MLP.
    """
    mlp_width = reader.integer("intermediate_size", 4 * hidden)
    width = heads.num_attention_heads * heads.head_dim
    attention = 2 * hidden * (width + 2 * heads.num_kv_heads * heads.head_dim) + width * hidden
    block = attention + 3 * hidden * mlp_width
    rank = reader.integer("adapter_rank", 128)
    use = hidden * hidden + rank * (hidden + 2 * mlp_width)
    num_blocks = reader.integer("num_mem_blocks", 1)
    return depth * mixer.weights(hidden) + num_blocks * block + num_hybrid * use
