"""Gemma-4: full layers have heads of another size; the last layers read the cache of others."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import AttentionLayer
from sim.models.parts import (
    FULL,
    SLIDING,
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
class _Stack:
    """Layer types in order, of which the first ``num_owning`` own a cache, and heads by type."""

    types: list[str]
    num_owning: int
    heads: dict[str, Heads]
    window: int
    is_k_the_v: bool  # in full layers one projection gives keys and values

    def layer(self, idx: int) -> AttentionLayer:
        kind = self.types[idx]
        return AttentionLayer(
            name=f"L{idx}",
            num_kv_heads=self.heads[kind].num_kv_heads,
            head_size=self.heads[kind].head_dim,
            sliding_window=self.window if kind == SLIDING else None,
        )

    def target(self, idx: int) -> int:
        """The last layer of the same type that owns a cache."""
        owning = range(self.num_owning)
        return max(owner for owner in owning if self.types[owner] == self.types[idx])

    def attention_weights(self, hidden: int) -> int:
        return sum(self._weights(kind, hidden) for kind in self.types)

    def _weights(self, kind: str, hidden: int) -> int:
        heads = self.heads[kind]
        saved = heads.num_kv_heads if kind == FULL and self.is_k_the_v else 0
        return heads.weights(hidden) - hidden * saved * heads.head_dim


def gemma4(reader: ConfigReader) -> Structure:
    """Full layers use ``global_head_dim``, and their own KV heads if ``attention_k_eq_v``.

    The engine stores keys and values separately even then.
    Source: models/README.md, "Gemma-4" and "Traps" 3.
    """
    text = reader.text()
    hidden = text.integer("hidden_size")
    stack = _read_stack(text, hidden)
    num_layers = len(stack.types)
    weights = [same(stack.attention_weights(hidden)), *_other_weights(text, hidden, stack)]
    return Structure(
        layers=tuple(stack.layer(idx) for idx in range(stack.num_owning)),
        kv_shared_target={
            f"L{idx}": f"L{stack.target(idx)}" for idx in range(stack.num_owning, num_layers)
        },
        max_model_len=text.integer("max_position_embeddings", 131_072),
        dims=counted_dims(
            text,
            hidden,
            num_layers,
            stack.heads[SLIDING],
            weights,
            tied=True,
            vocab_size=262_144,
        ),
    )


def _read_stack(reader: ConfigReader, hidden: int) -> _Stack:
    types = reader.strings("layer_types", reader.num_layers(), (FULL, SLIDING))
    sliding = read_heads(reader, hidden, default_head_dim=256)
    is_k_the_v = reader.boolean("attention_k_eq_v", False)
    kv_heads = sliding.num_kv_heads
    if is_k_the_v and reader.has("num_global_key_value_heads"):
        kv_heads = reader.integer("num_global_key_value_heads")
    head_dim = reader.integer("global_head_dim", 512)
    full = Heads(sliding.num_attention_heads, kv_heads, head_dim)
    allowed = f"a divisor of num_attention_heads ({full.num_attention_heads})"
    divides = full.num_attention_heads % kv_heads == 0
    reader.check(divides, "num_global_key_value_heads", kv_heads, allowed)
    num_owning = len(types) - _num_shared(reader, types)
    window = reader.integer("sliding_window", 512)
    return _Stack(types, num_owning, {FULL: full, SLIDING: sliding}, window, is_k_the_v)


def _num_shared(reader: ConfigReader, types: list[str]) -> int:
    key = "num_kv_shared_layers"
    shared = reader.integer(key, 0, minimum=0)
    owning = types[: len(types) - shared] if shared < len(types) else []
    valid = set(types[len(owning) :]) <= set(owning)
    reader.check(valid, key, shared, "fewer: a layer of each shared type must own a cache")
    return shared if valid else 0


def _other_weights(reader: ConfigReader, hidden: int, stack: _Stack) -> list[tuple[int, int]]:
    """MLPs, experts beside them where the block has some, and the embedding of each layer."""
    num_layers = len(stack.types)
    width = reader.integer("intermediate_size")
    mlp = gated_mlp_weights(hidden, width)
    num_wide = 0
    if reader.boolean("use_double_wide_mlp", False):
        num_wide = num_layers - stack.num_owning
    weights = [same(mlp * (num_layers + num_wide))]
    if reader.boolean("enable_moe_block", False):
        experts = read_experts(reader, "num_experts", 128, 8, "top_k_experts")
        mixture = experts.weights(hidden, reader.integer("moe_intermediate_size", 704))
        weights.extend([mixture] * num_layers)
    size = reader.integer("hidden_size_per_layer_input", 256, minimum=0)
    vocabulary = reader.integer("vocab_size_per_layer_input", 262_144)
    weights.append(same(3 * hidden * size * num_layers))
    return [*weights, (vocabulary * num_layers * size, 0)]
