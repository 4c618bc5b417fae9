"""Stacks of attention blocks of one shape, which most attention-only families are."""

from __future__ import annotations

from collections.abc import Sequence

from sim.models.parts import (
    Heads,
    Structure,
    attention_layers,
    counted_dims,
    gated_mlp_weights,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader

Windows = Sequence[int | None]


def attention_stack(
    reader: ConfigReader,
    windows: Windows,
    heads: Heads,
    mlps: Sequence[tuple[int, int]],
    *,
    hidden_size: int,
    tied: bool = False,
    vocab_size: int | None = None,
    max_model_len: int | None = None,
) -> Structure:
    """Return one attention layer per window; mlps: (total, active) parameters per layer.

    tied, vocab_size and max_model_len are the family's defaults; without one the key is needed.
    """
    given = () if max_model_len is None else (max_model_len,)
    weights = [same(heads.weights(hidden_size) * len(windows)), *mlps]
    return Structure(
        layers=attention_layers(heads, windows),
        max_model_len=reader.integer("max_position_embeddings", *given),
        dims=counted_dims(
            reader, hidden_size, len(windows), heads, weights, tied=tied, vocab_size=vocab_size
        ),
    )


def dense_stack(
    reader: ConfigReader,
    windows: Windows,
    *,
    heads: Heads | None = None,
    tied: bool = False,
    vocab_size: int | None = None,
    max_model_len: int | None = None,
) -> Structure:
    """Return the same with one gated MLP in every layer."""
    hidden = reader.integer("hidden_size")
    mlp = same(gated_mlp_weights(hidden, reader.integer("intermediate_size")))
    return attention_stack(
        reader,
        windows,
        heads or read_heads(reader, hidden),
        [mlp] * len(windows),
        hidden_size=hidden,
        tied=tied,
        vocab_size=vocab_size,
        max_model_len=max_model_len,
    )
