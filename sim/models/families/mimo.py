"""MiMo-V2-Flash: layers that slide have head counts of their own, keys longer than values."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import AttentionLayer
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


@dataclass(frozen=True, slots=True)
class _Attention:
    """Head counts and sizes of one kind of layer; window is None for full attention."""

    heads: Heads
    head_size_v: int
    window: int | None

    def layer(self, idx: int) -> AttentionLayer:
        return AttentionLayer(
            name=f"L{idx}",
            num_kv_heads=self.heads.num_kv_heads,
            head_size=self.heads.head_dim,
            head_size_v=self.head_size_v,
            sliding_window=self.window,
        )

    def weights(self, hidden: int) -> int:
        widths = self.heads.head_dim + self.head_size_v
        return hidden * (self.heads.num_attention_heads + self.heads.num_kv_heads) * widths


def mimo_v2(reader: ConfigReader) -> Structure:
    """Layer i slides iff ``hybrid_layer_pattern[i]`` is 1, with the ``swa_*`` sizes.

    ``attention_chunk_size`` is ignored, as in the engine.
    Source: models/README.md, "MiMo-V2-Flash" and "More traps".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    full = _full(reader, hidden)
    kinds = [full, _sliding(reader, full)]
    pattern = reader.integers("hybrid_layer_pattern", num_layers, maximum=1)
    attention = sum(kinds[slides].weights(hidden) for slides in pattern)
    weights = [same(attention), *_mlps(reader, hidden, num_layers)]
    return Structure(
        layers=tuple(kinds[slides].layer(idx) for idx, slides in enumerate(pattern)),
        max_model_len=reader.integer("max_position_embeddings", 262_144),
        dims=counted_dims(reader, hidden, num_layers, full.heads, weights, vocab_size=152_576),
    )


def _full(reader: ConfigReader, hidden: int) -> _Attention:
    heads = read_heads(reader, hidden, default_heads=64, default_kv_heads=4, default_head_dim=192)
    return _Attention(heads, reader.integer("v_head_dim", 128), None)


def _sliding(reader: ConfigReader, full: _Attention) -> _Attention:
    heads = Heads(
        reader.integer("swa_num_attention_heads", full.heads.num_attention_heads),
        reader.integer("swa_num_key_value_heads", 8),
        reader.integer("swa_head_dim", full.heads.head_dim),
    )
    allowed = f"a divisor of swa_num_attention_heads ({heads.num_attention_heads})"
    divides = heads.num_attention_heads % heads.num_kv_heads == 0
    reader.check(divides, "swa_num_key_value_heads", heads.num_kv_heads, allowed)
    window = reader.integer(reader.first_of("sliding_window", "sliding_window_size"), 128)
    return _Attention(heads, reader.integer("swa_v_head_dim", full.head_size_v), window)


def _mlps(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    experts = read_experts(reader, "n_routed_experts", 256, 8)
    mixture = experts.weights(hidden, reader.integer("moe_intermediate_size", 2048))
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 16_384)))
    flags = reader.integers("moe_layer_freq", num_layers, maximum=1)
    return [mixture if flag else dense for flag in flags]
