"""Dense models that list which of their layers slide: OLMo-3, EXAONE-4, Ministral."""

from __future__ import annotations

from sim.models.parts import Structure, is_periodic_end, windows_of_types
from sim.models.reader import MAX_LAYERS, ConfigReader
from sim.models.stacks import Windows, dense_stack

_LETTERS = {"L": True, "G": False}  # local, global


def olmo3(reader: ConfigReader) -> Structure:
    """Layers as ``layer_types`` says; without it, every fourth is full.

    Source: models/README.md, "OLMo-3, EXAONE-4".
    """
    num_layers = reader.num_layers()
    window = reader.integer("sliding_window", 4096)
    if reader.has("layer_types"):
        windows = windows_of_types(reader, num_layers, window)
    else:
        windows = _every(4, num_layers, window)
    return dense_stack(reader, windows, vocab_size=50_304, max_model_len=2048)


def exaone4(reader: ConfigReader) -> Structure:
    """Layers as ``layer_types`` says, else by a pattern: a period, or letters such as LLLG.

    A file with neither pattern nor window has full attention only.
    Source: models/README.md, "OLMo-3, EXAONE-4" and "More traps".
    """
    num_layers = reader.num_layers()
    given = [key for key in ("layer_types", "sliding_window_pattern") if reader.has(key)]
    if not given and not reader.has("sliding_window"):
        windows: Windows = [None] * num_layers
    elif reader.has("layer_types"):
        windows = windows_of_types(reader, num_layers, reader.integer("sliding_window", 4096))
    else:
        windows = _by_pattern(reader, num_layers, reader.integer("sliding_window", 4096))
    return dense_stack(reader, windows, vocab_size=102_400, max_model_len=2048)


def ministral(reader: ConfigReader) -> Structure:
    """Layers as ``layer_types`` says; without it the window, if any, is in every layer.

    Source: models/README.md, "Mistral-7B-v0.1, Phi-3-mini".
    """
    num_layers = reader.num_layers()
    window = reader.integer("sliding_window") if reader.has("sliding_window") else None
    if window is None or not reader.has("layer_types"):
        return dense_stack(reader, [window] * num_layers)
    return dense_stack(reader, windows_of_types(reader, num_layers, window))


def _every(period: int, num_layers: int, window: int) -> list[int | None]:
    return [None if is_periodic_end(idx, period) else window for idx in range(num_layers)]


def _by_pattern(reader: ConfigReader, num_layers: int, window: int) -> list[int | None]:
    pattern = reader.raw("sliding_window_pattern")
    if not isinstance(pattern, str):
        return _every(reader.integer("sliding_window_pattern", 4), num_layers, window)
    valid = 0 < len(pattern) <= MAX_LAYERS and set(pattern) <= set(_LETTERS)
    reader.check(valid, "sliding_window_pattern", pattern, "a period, or letters L and G")
    letters = pattern if valid else "L"
    return [window if _LETTERS[letters[idx % len(letters)]] else None for idx in range(num_layers)]
