"""Full attention in every layer, experts in most: Qwen3-MoE, GLM-4.5, MiniMax-M2, Hunyuan-A13B."""

from __future__ import annotations

from dataclasses import replace

from sim.models.families.uniform import qwen_windows, refuse_shared_caches
from sim.models.layers import AttentionLayer
from sim.models.parts import (
    Experts,
    Heads,
    Structure,
    gated_mlp_weights,
    is_periodic_end,
    num_mtp_layers,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader
from sim.models.stacks import attention_stack


def qwen_moe(reader: ConfigReader) -> Structure:
    """Qwen-3 with experts in every ``decoder_sparse_step``-th layer."""
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    experts = read_experts(reader, "num_experts", 128, 8)
    step = reader.integer("decoder_sparse_step", 1)
    mixture = experts.weights(hidden, reader.integer("moe_intermediate_size", 768))
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 6144)))
    mlps = [mixture if is_periodic_end(idx, step) else dense for idx in range(num_layers)]
    windows = qwen_windows(reader)
    return attention_stack(reader, windows, read_heads(reader, hidden), mlps, hidden_size=hidden)


def glm4_moe(reader: ConfigReader) -> Structure:
    """GLM-4.5: dense layers first, then experts and a shared one.

    Source: models/README.md, "Qwen2.5, ..., GLM-4.5"; spec/layout.md 15.7 for its MTP layers.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    experts = read_experts(reader, "n_routed_experts", 128, 8)
    width = reader.integer("moe_intermediate_size", 1408)
    shared = reader.integer("n_shared_experts", 1, minimum=0) * width
    first = reader.integer("first_k_dense_replace", 1, minimum=0)
    mixture = experts.weights_with_shared(hidden, width, shared)
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 10_944)))
    mlps = [dense if idx < first else mixture for idx in range(num_layers)]
    structure = attention_stack(
        reader, [None] * num_layers, heads, mlps, hidden_size=hidden, max_model_len=131_072
    )
    return replace(structure, mtp_layers=_mtp(reader, num_layers, heads))


def _mtp(reader: ConfigReader, num_layers: int, heads: Heads) -> tuple[AttentionLayer, ...]:
    return tuple(
        AttentionLayer(name=f"L{idx}", num_kv_heads=heads.num_kv_heads, head_size=heads.head_dim)
        for idx in range(num_layers, num_layers + num_mtp_layers(reader))
    )


def minimax_m2(reader: ConfigReader) -> Structure:
    """Experts in every layer; ``attn_type_list`` is all ones and changes nothing.

    Source: models/README.md, "Traps" 1.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    experts = read_experts(reader, "num_local_experts", 256, 8)
    mixture = experts.weights(hidden, reader.integer("intermediate_size", 1536))
    windows = [None] * num_layers
    return attention_stack(reader, windows, heads, [mixture] * num_layers, hidden_size=hidden)


def hunyuan_moe(reader: ConfigReader) -> Structure:
    """Experts and a shared one in every layer; sizes are a number or one number per layer."""
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    refuse_shared_caches(reader)
    num_experts = reader.integer("num_experts", 64)
    per_token = _per_layer(reader, "moe_topk", num_layers, 8)
    widths = _per_layer(reader, "moe_intermediate_size", num_layers, 3072)
    num_shared = _per_layer(reader, "num_shared_expert", num_layers, 1)
    most = f"at most num_experts ({num_experts})"
    reader.check(max(per_token) <= num_experts, "moe_topk", max(per_token), most)
    mlps = [
        Experts(num_experts, count).weights_with_shared(hidden, width, shared * width)
        for count, width, shared in zip(per_token, widths, num_shared, strict=True)
    ]
    windows = [None] * num_layers
    return attention_stack(reader, windows, heads, mlps, hidden_size=hidden, tied=True)


def _per_layer(reader: ConfigReader, key: str, num_layers: int, default: int) -> list[int]:
    if isinstance(reader.raw(key), list):
        return reader.integers(key, num_layers)
    return [reader.integer(key, default)] * num_layers
