"""Bamba and Granite-4.0-H: Mamba-2 layers, a few of full attention among them."""

from __future__ import annotations

from collections.abc import Sequence

from sim.models.layers import LayerSpec
from sim.models.parts import (
    Experts,
    Heads,
    Structure,
    counted_dims,
    gated_mlp_weights,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader
from sim.models.recurrent import (
    Mamba2,
    attention_of,
    mamba_name,
    read_chunk_size,
    read_mamba2,
)

# transformers 5 writes the second spelling of each
_ATTENDS = {
    "mamba": False,
    "linear_attention": False,
    "attention": True,
    "full_attention": True,
}


def bamba(reader: ConfigReader) -> Structure:
    """Layer i attends iff it is in ``attn_layer_indices``.

    The mode ``all`` is that of its last engine release: spec/layout.md 3.2 gives its block size.
    Source: models/README.md, "Bamba".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    if reader.has("layer_types"):
        attends = attends_by_types(reader, "layer_types", num_layers)
    else:
        listed = reader.indices("attn_layer_indices", num_layers)
        attends = [idx in listed for idx in range(num_layers)]
    mlp = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 14_336)))
    heads = read_heads(reader, hidden, default_kv_heads=8)
    mixer = _read_mixer(reader, hidden)
    return _structure(reader, hidden, heads, mixer, attends, [mlp] * num_layers, tied=False)


def granite_hybrid(reader: ConfigReader) -> Structure:
    """Layer i attends iff ``layer_types[i]`` is "attention" (or "full_attention").

    Source: models/README.md, "Granite-4.0-H" and "Traps" 5.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    types_key = reader.first_of("layer_types", "layers_block_type")
    attends = attends_by_types(reader, types_key, num_layers)
    shared = reader.integer("shared_intermediate_size", 1024, minimum=0)
    mlp = same(gated_mlp_weights(hidden, shared))
    experts = _read_experts(reader)
    if experts is not None:
        width = reader.integer("intermediate_size")
        mlp = experts.weights_with_shared(hidden, width, shared)
    heads = read_heads(reader, hidden)
    mixer = _read_mixer(reader, hidden)
    return _structure(reader, hidden, heads, mixer, attends, [mlp] * num_layers, tied=True)


def attends_by_types(reader: ConfigReader, key: str, num_layers: int) -> list[bool]:
    """Return True for each attention layer of a list in either spelling of transformers."""
    return [_ATTENDS[kind] for kind in reader.strings(key, num_layers, _ATTENDS)]


def _read_experts(reader: ConfigReader) -> Experts | None:
    if reader.raw("num_local_experts") in (0, None):
        return None
    return read_experts(reader, "num_local_experts", 8, 2)


def _read_mixer(reader: ConfigReader, hidden: int) -> Mamba2:
    width = hidden * reader.integer("mamba_expand", 2)
    return read_mamba2(reader, width, num_heads=128, num_groups=1, state=256)


def _structure(
    reader: ConfigReader,
    hidden: int,
    heads: Heads,
    mixer: Mamba2,
    attends: Sequence[bool],
    mlps: Sequence[tuple[int, int]],
    *,
    tied: bool,
) -> Structure:
    mixers = [heads.weights(hidden) if full else mixer.weights(hidden) for full in attends]
    depth = len(attends)
    return Structure(
        layers=tuple(_layer(idx, full, heads, mixer) for idx, full in enumerate(attends)),
        max_model_len=reader.integer("max_position_embeddings", 262_144),
        dims=counted_dims(reader, hidden, depth, heads, [same(sum(mixers)), *mlps], tied=tied),
        supports_mamba_all=True,
        mamba_chunk_size=read_chunk_size(reader),
    )


def _layer(idx: int, attends: bool, heads: Heads, mixer: Mamba2) -> LayerSpec:
    return attention_of(idx, heads) if attends else mixer.layer(mamba_name(idx))
