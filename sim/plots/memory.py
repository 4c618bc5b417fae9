"""Where the KV memory is, over simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.plots.figure import (
    BLACK,
    BLUE,
    DARK_GREY,
    GREEN,
    LIGHT_GREY,
    MIDDLE_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    Drawable,
    ResultFigure,
    say_empty,
    set_title,
)
from sim.units import GIB, NS_PER_S

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From the bottom up: what is of use first, what is free last.
_LAYERS = {
    "live": ("live", BLUE),
    "reusable": ("reusable (cached)", SKY),
    "lookahead": ("lookahead", GREEN),
    "tail": ("tail of a block", YELLOW),
    "out_of_window": ("out of window", ORANGE),
    "page_padding": ("page padding", PURPLE),
    "layer_padding": ("layer padding", VERMILION),
    "null_block": ("null block", DARK_GREY),
    "remainder": ("remainder", BLACK),
    "free": ("free", LIGHT_GREY),
}
_SMALL = 0.001  # a part that never exceeds this share is drawn together with the other such parts


def draw(result: Drawable, figure: Figure) -> None:
    """Stack the parts of the KV memory over time, in GiB; parts that stay tiny are one layer."""
    axes = figure.subplots()
    axes.set(xlabel="simulated time [s]", ylabel="KV memory [GiB]")
    set_title(figure, result, "where the KV memory is")
    frame, memory = result.waste, result.tables.kv_memory_bytes
    if len(frame) < 2:
        say_empty(axes, "fewer than two steps were sampled")
        return
    small = [p for p in _LAYERS if p != "free" and frame[p].max() < _SMALL * memory]
    shown = [part for part in _LAYERS if part not in small]
    layers = [frame[part] / GIB for part in shown]
    labels = [_LAYERS[part][0] for part in shown]
    colours = [_LAYERS[part][1] for part in shown]
    rest = frame[small].sum(axis=1) / GIB
    if small and rest.max() > 0:
        layers.insert(-1, rest)
        labels.insert(-1, "other (each < 0.1 %)")
        colours.insert(-1, MIDDLE_GREY)
    seconds = frame["time_ns"] / NS_PER_S
    axes.stackplot(seconds, layers, labels=labels, colors=colours, step="post", linewidth=0)
    axes.set_ylim(0, memory / GIB)
    axes.set_xlim(seconds.iloc[0], seconds.iloc[-1])
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))


MEMORY = ResultFigure("memory", "KV memory over time, stacked by part", draw)
