"""How long requests waited for their first token, and for each further one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.metrics.metric import nearest_rank
from sim.metrics.request import tpot_s, ttft_s
from sim.plots.figure import (
    BLUE,
    DARK_GREY,
    VERMILION,
    Drawable,
    ResultFigure,
    legend_above,
    say_empty,
    set_title,
)
from sim.plots.log_axis import set_log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = ((50, "--"), (99, ":"))


def draw(result: Drawable, figure: Figure) -> None:
    """Draw the share of requests up to each TTFT and TPOT; dashed p50, dotted p99."""
    left, right = figure.subplots(1, 2, sharey=True)
    milliseconds = [1000 * value for value in tpot_s(result.tables)]
    _distribution(left, ttft_s(result.tables), "time to first token", "s", BLUE)
    _distribution(right, milliseconds, "time per output token", "ms", VERMILION)
    left.set_ylabel("share of requests")
    set_title(figure, result, "latency")


def _distribution(axes: Axes, values: list[float], quantity: str, unit: str, colour: str) -> None:
    axes.set_xlabel(f"{quantity} [{unit}]")
    axes.set_ylim(0, 1.02)
    if not values:
        say_empty(axes, "no request got this far")
        return
    set_log_axis(axes, min(values), max(values))
    axes.ecdf(values, color=colour)
    for percent, style in _LINES:
        value = nearest_rank(values, percent)
        text = f"p{percent} {value:.3g} {unit}"
        line = {"color": DARK_GREY, "linestyle": style, "linewidth": 1.4, "zorder": 1.5}
        axes.axvline(value, label=text, **line)  # below the curve
    legend_above(axes, num_columns=2)


LATENCY = ResultFigure("latency", "distribution of TTFT and TPOT", draw)
