"""Dense models whose layers are all alike, and the Qwen switch that makes some of them slide."""

from __future__ import annotations

from sim.models.parts import Structure, windows_of_types
from sim.models.reader import ConfigReader
from sim.models.stacks import dense_stack


def llama(reader: ConfigReader) -> Structure:
    """Full attention in every layer. Source: models/README.md, "Llama-3.1"."""
    return dense_stack(reader, [None] * reader.num_layers())


def one_window(reader: ConfigReader) -> Structure:
    """One window for every layer, or none: Mistral and Phi-3; a list of layer types wins.

    A window at least as long as the context is kept: the engine builds sliding specs there too.
    Source: models/README.md, "Mistral-7B-v0.1, Phi-3-mini"; spec/layout.md 2.3 and 15.12.
    """
    num_layers = reader.num_layers()
    window = reader.integer("sliding_window") if reader.has("sliding_window") else None
    if window is not None and reader.has("layer_types"):
        return dense_stack(reader, windows_of_types(reader, num_layers, window))
    return dense_stack(reader, [window] * num_layers)


def qwen(reader: ConfigReader) -> Structure:
    """Full attention unless ``use_sliding_window`` is on. Source: models/README.md, "Qwen2.5"."""
    return dense_stack(reader, qwen_windows(reader))


def hunyuan(reader: ConfigReader) -> Structure:
    """Full attention in every layer; embeddings are tied unless the file says otherwise."""
    refuse_shared_caches(reader)
    return dense_stack(reader, [None] * reader.num_layers(), tied=True)


def refuse_shared_caches(reader: ConfigReader) -> None:
    """Refuse ``use_cla``, with which layers would share a cache: no source says which of them.

    It is off in every released Hunyuan file. Source: models/README.md, "Traps" 1.
    """
    shares = reader.boolean("use_cla", False)
    reader.check(not shares, "use_cla", True, "false: caches shared by layers have no rule")


def qwen_windows(reader: ConfigReader) -> list[int | None]:
    """With the switch on, layers from ``max_window_layers`` slide, or as ``layer_types`` says."""
    num_layers = reader.num_layers()
    if not reader.boolean("use_sliding_window", False):
        return [None] * num_layers
    window = reader.integer("sliding_window", 4096)
    if reader.has("layer_types"):
        return windows_of_types(reader, num_layers, window)
    first = reader.integer("max_window_layers", 28, minimum=0)
    return [window if idx >= first else None for idx in range(num_layers)]
