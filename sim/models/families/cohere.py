"""Cohere2 (Command R7B, Command A): three sliding layers, then a full one."""

from __future__ import annotations

from sim.models.parts import Structure, is_periodic_end, read_heads, windows_of_types
from sim.models.reader import ConfigReader
from sim.models.stacks import dense_stack


def cohere2(reader: ConfigReader) -> Structure:
    """Layer i is full iff (i + 1) is a multiple of ``sliding_window_pattern``.

    Source: models/README.md, "Cohere2".
    """
    num_layers = reader.num_layers()
    heads = read_heads(reader, reader.integer("hidden_size"), default_kv_heads=8)
    window = reader.integer("sliding_window", 4096)
    if reader.has("layer_types"):
        windows = windows_of_types(reader, num_layers, window)
    else:
        period = reader.integer("sliding_window_pattern", 4)
        windows = [None if is_periodic_end(idx, period) else window for idx in range(num_layers)]
    return dense_stack(
        reader, windows, heads=heads, tied=True, vocab_size=256_000, max_model_len=8192
    )
