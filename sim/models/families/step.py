"""Step-3.5: sliding layers have more query heads, the list of types runs on into MTP layers."""

from __future__ import annotations

from sim.models.layers import AttentionLayer
from sim.models.parts import (
    FULL,
    SLIDING,
    Heads,
    Structure,
    counted_dims,
    gated_mlp_weights,
    num_mtp_layers,
    read_experts,
    same,
)
from sim.models.reader import MAX_LAYERS, ConfigReader


def step3p5(reader: ConfigReader) -> Structure:
    """Layers as ``layer_types`` says; sliding ones take their heads from another section.

    Source: models/README.md, "Step-3.5" and "Traps" 6; spec/layout.md 15.7.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = {FULL: _heads(reader), SLIDING: _sliding_heads(reader)}
    window = reader.integer("sliding_window", 512)
    types = _types(reader, num_layers)
    layers = tuple(_layer(idx, kind, heads[kind], window) for idx, kind in enumerate(types))
    attention = sum(heads[kind].weights(hidden) for kind in types[:num_layers])
    weights = [same(attention), *_mlps(reader, hidden, num_layers)]
    return Structure(
        layers=layers[:num_layers],
        mtp_layers=layers[num_layers:],
        max_model_len=reader.integer("max_position_embeddings", 65_536),
        dims=counted_dims(reader, hidden, num_layers, heads[FULL], weights, vocab_size=128_815),
    )


def _types(reader: ConfigReader, num_layers: int) -> list[str]:
    """Types of the layers and, where the list goes on, of the MTP layers; those else slide."""
    num_mtp = num_mtp_layers(reader)
    listed = reader.raw("layer_types")
    long_enough = isinstance(listed, list) and len(listed) >= num_layers + num_mtp
    length = num_layers + num_mtp if long_enough else num_layers
    types = reader.strings("layer_types", length, (FULL, SLIDING))
    return types + [SLIDING] * (num_layers + num_mtp - length)


def _heads(reader: ConfigReader) -> Heads:
    heads = reader.integer("num_attention_heads")
    groups = reader.integer("num_attention_groups", 8)
    allowed = f"a divisor of num_attention_heads ({heads})"
    reader.check(heads % groups == 0, "num_attention_groups", groups, allowed)
    return Heads(heads, groups, reader.integer("head_dim", 128))


def _sliding_heads(reader: ConfigReader) -> Heads:
    key = "attention_other_setting"
    return _heads(reader.section(key) if reader.has(key) else reader)


def _layer(idx: int, kind: str, heads: Heads, window: int) -> AttentionLayer:
    return AttentionLayer(
        name=f"L{idx}",
        num_kv_heads=heads.num_kv_heads,
        head_size=heads.head_dim,
        sliding_window=window if kind == SLIDING else None,
    )


def _mlps(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    experts = read_experts(reader, "moe_num_experts", 288, 8, "moe_top_k")
    width = reader.integer("moe_intermediate_size", 1280)
    shared = reader.integer("share_expert_dim", 1280, minimum=0)
    mixture = experts.weights_with_shared(hidden, width, shared)
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 11_264)))
    sparse = _sparse_layers(reader, num_layers)
    return [mixture if idx in sparse else dense for idx in range(num_layers)]


def _sparse_layers(reader: ConfigReader, num_layers: int) -> set[int]:
    """Layer numbers, given as one string with commas; all but the first layers without it."""
    listed = reader.raw("moe_layers_enum")
    if listed is None:
        return set(range(1, num_layers))
    numbers = listed.split(",") if isinstance(listed, str) and len(listed) < MAX_LAYERS * 8 else []
    valid = bool(numbers) and all(_is_number(text) for text in numbers)
    reader.check(valid, "moe_layers_enum", listed, "layer numbers with commas between them")
    return {int(text) for text in numbers} if valid else set()


def _is_number(text: str) -> bool:
    stripped = text.strip()
    return stripped.isascii() and stripped.isdigit() and len(stripped) <= 6
