"""How much of the prompts was cached, as the run went on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.plots.figure import BLACK, BLUE, Drawable, ResultFigure, legend_above, say_empty, set_title
from sim.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOW = 100
"""Admissions in the moving window of the figure."""


def draw(result: Drawable, figure: Figure) -> None:
    """Draw cached over prompt tokens: of the last ``WINDOW`` admissions, and of all so far."""
    axes = figure.subplots()
    axes.set(xlabel="simulated time [s]", ylabel="hit rate [share of prompt tokens]")
    set_title(figure, result, "prefix hit rate")
    axes.set_ylim(0, 1)
    axes.margins(x=0.01)
    frame = result.requests[result.requests["cached_tokens"].notna()]
    frame = frame.sort_values("first_scheduled_ns", kind="stable")
    if len(frame) < 2:
        say_empty(axes, "fewer than two requests were admitted")
        return
    seconds = frame["first_scheduled_ns"].to_numpy(np.int64) / NS_PER_S
    cached = frame["cached_tokens"].to_numpy(np.int64)
    asked = frame["prompt_tokens"].to_numpy(np.int64)
    window = min(WINDOW, len(frame))
    recent = windowed(cached, window) / windowed(asked, window)
    axes.plot(seconds, recent, color=BLUE, linewidth=1.4, label=f"last {window} admissions")
    total = np.cumsum(cached) / np.cumsum(asked)
    axes.plot(seconds, total, color=BLACK, linestyle="--", label="all admissions so far")
    legend_above(axes, num_columns=2)


def windowed(values: np.ndarray, window: int) -> np.ndarray:
    """Return at each place the sum of the last ``window`` values, or of all if there are fewer."""
    sums = np.cumsum(values)
    sums[window:] = sums[window:] - sums[:-window]
    return sums


HIT_RATE = ResultFigure("hit_rate", "prefix hit rate over time", draw)
