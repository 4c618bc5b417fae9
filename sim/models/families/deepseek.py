"""DeepSeek-V2, V3, V3.2 and GLM-5: latent attention, later with a sparse indexer."""

from __future__ import annotations

from collections.abc import Callable

from sim.models.latent import Indexer, Latent, read_indexer, read_latent
from sim.models.layers import LayerSpec
from sim.models.parts import (
    Structure,
    counted_dims,
    gated_mlp_weights,
    num_mtp_layers,
    read_experts,
    same,
)
from sim.models.reader import ConfigReader

_FULL, _SHARED = "full", "shared"


def deepseek(reader: ConfigReader) -> Structure:
    """Latent attention in every layer. Source: models/README.md, "DeepSeek-V2/V3"."""
    latent = read_latent(reader)

    def caches(idx: int) -> list[LayerSpec]:
        return [latent.layer(f"L{idx}")]

    num_layers = reader.num_layers()
    attention = latent.weights(reader.integer("hidden_size")) * num_layers
    return _structure(reader, latent, caches, attention)


def deepseek_sparse(reader: ConfigReader) -> Structure:
    """An indexer's key cache beside each latent one. Source: models/README.md, "V3.2, GLM-5"."""
    return _sparse(reader, read_latent(reader, q_lora_rank=1536), lambda idx: True)


def glm_sparse(reader: ConfigReader) -> Structure:
    """The same; in GLM-5.2 some layers reuse the choice of the layer before and own no indexer.

    Layer i owns one iff max(i - offset + 1, 0) is a multiple of ``index_topk_freq``.
    Source: models/README.md, "GLM-5.2".
    """
    latent = read_latent(reader, q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256)
    num_layers = reader.num_layers()
    frequency = reader.integer("index_topk_freq", 1)
    offset = reader.integer("index_skip_topk_offset", 2, minimum=0)
    if reader.has("index_topk_freq") or not reader.has("indexer_types"):
        return _sparse(reader, latent, lambda idx: max(idx - offset + 1, 0) % frequency == 0)
    types = reader.strings("indexer_types", num_layers, (_FULL, _SHARED))
    return _sparse(reader, latent, lambda idx: idx >= num_layers or types[idx] == _FULL)


def _sparse(reader: ConfigReader, latent: Latent, owns: Callable[[int], bool]) -> Structure:
    indexer = read_indexer(reader)

    def caches(idx: int) -> list[LayerSpec]:
        main = latent.layer(f"L{idx}.attn", is_sparse=True)
        return [main, indexer.layer(f"L{idx}.idx")] if owns(idx) else [main]

    num_layers, hidden = reader.num_layers(), reader.integer("hidden_size")
    num_indexers = sum(owns(idx) for idx in range(num_layers))
    attention = latent.weights(hidden) * num_layers
    return _structure(
        reader, latent, caches, attention + num_indexers * _weights(indexer, hidden, latent)
    )


def _weights(indexer: Indexer, hidden: int, latent: Latent) -> int:
    return indexer.weights(hidden, latent.q_lora_rank or hidden)


def _structure(
    reader: ConfigReader,
    latent: Latent,
    caches: Callable[[int], list[LayerSpec]],
    attention: int,
) -> Structure:
    num_layers, hidden = reader.num_layers(), reader.integer("hidden_size")
    last = num_layers + num_mtp_layers(reader)
    weights = [same(attention), *_mlps(reader, hidden, num_layers)]
    return Structure(
        layers=tuple(layer for idx in range(num_layers) for layer in caches(idx)),
        mtp_layers=tuple(layer for idx in range(num_layers, last) for layer in caches(idx)),
        max_model_len=reader.integer("max_position_embeddings", 163_840),
        dims=counted_dims(reader, hidden, num_layers, latent.heads, weights),
    )


def _mlps(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    """Dense layers first, then experts in every ``moe_layer_freq``-th."""
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size")))
    if not reader.has("n_routed_experts"):
        return [dense] * num_layers
    experts = read_experts(reader, "n_routed_experts", 256, 8)
    width = reader.integer("moe_intermediate_size")
    shared = width * reader.integer("n_shared_experts", 1, minimum=0)
    mixture = experts.weights_with_shared(hidden, width, shared)
    first = reader.integer("first_k_dense_replace", 0, minimum=0)
    step = reader.integer("moe_layer_freq", 1)
    return [mixture if idx >= first and idx % step == 0 else dense for idx in range(num_layers)]
