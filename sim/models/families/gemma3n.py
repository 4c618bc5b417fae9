"""Gemma-3n: four sliding layers, then a full one; the last layers read the cache of others."""

from __future__ import annotations

from sim.models.parts import (
    FULL,
    SLIDING,
    Heads,
    Structure,
    attention_layers,
    counted_dims,
    gated_mlp_weights,
    is_periodic_end,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader

_LAUREL_RANK = 64
_PERIOD = 5


def gemma3n(reader: ConfigReader) -> Structure:
    """The last ``num_kv_shared_layers`` layers own no cache.

    With n = layers - shared, a sliding one reads layer n - 2 and a full one layer n - 1.
    Source: models/README.md, "Gemma-3n"; spec/layout.md 6.7.
    """
    text = reader.text()
    num_layers = text.num_layers()
    hidden = text.integer("hidden_size", 2048)
    heads = read_heads(text, hidden, default_heads=8, default_kv_heads=2, default_head_dim=256)
    window = text.integer("sliding_window", 512)
    types = _types(text, num_layers)
    num_owning = num_layers - _num_shared(text, num_layers)
    windows = [window if kind == SLIDING else None for kind in types[:num_owning]]
    targets = {SLIDING: num_owning - 2, FULL: num_owning - 1}
    return Structure(
        layers=attention_layers(heads, windows),
        kv_shared_target={
            f"L{idx}": f"L{targets[types[idx]]}" for idx in range(num_owning, num_layers)
        },
        max_model_len=text.integer("max_position_embeddings", 32_768),
        dims=counted_dims(
            text,
            hidden,
            num_layers,
            heads,
            _weights(text, hidden, num_layers, heads),
            tied=True,
            vocab_size=262_400,
        ),
    )


def _types(reader: ConfigReader, num_layers: int) -> list[str]:
    if reader.has("layer_types"):
        return reader.strings("layer_types", num_layers, (FULL, SLIDING))
    return [FULL if is_periodic_end(idx, _PERIOD) else SLIDING for idx in range(num_layers)]


def _num_shared(reader: ConfigReader, num_layers: int) -> int:
    key = "num_kv_shared_layers"
    shared = reader.integer(key, 15, minimum=0)
    valid = shared == 0 or shared <= num_layers - 2
    reader.check(
        valid, key, shared, f"at most {max(num_layers - 2, 0)}: two layers must own a cache"
    )
    return shared if valid else 0


def _weights(
    reader: ConfigReader, hidden: int, num_layers: int, heads: Heads
) -> list[tuple[int, int]]:
    """Blocks, and the embedding of each layer, of which a token reads one row."""
    size = reader.integer("hidden_size_per_layer_input", 256)
    vocabulary = reader.integer("vocab_size_per_layer_input", 262_144)
    if isinstance(reader.raw("intermediate_size"), list):
        widths = reader.integers("intermediate_size", num_layers)
    else:
        widths = [reader.integer("intermediate_size", 16_384)] * num_layers
    block = heads.weights(hidden) + 2 * hidden * (_LAUREL_RANK + size)
    mlps = sum(gated_mlp_weights(hidden, width) for width in widths)
    projection = hidden * num_layers * size
    return [same(block * num_layers + mlps + projection), (vocabulary * num_layers * size, 0)]
