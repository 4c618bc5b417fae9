"""Slopes, table and figure of ``bench_growth``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from typing import Any

LABELS = {
    "requests": "requests",
    "prompt": "tokens of a prompt",
    "pool": "blocks in the pool",
    "groups": "groups",
}


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent k of the power law y = c x^k that fits best, by least squares of logs.

    >>> round(slope([1, 10, 100], [2, 20, 200]), 6), round(slope([1, 10, 100], [7, 7, 7]), 6)
    (1.0, 0.0)

    Raises ValueError for fewer than two different xs, and for numbers that are not positive.
    """
    lx, ly = [log(x) for x in xs], [log(y) for y in ys]
    mean_x, mean_y = statistics.fmean(lx), statistics.fmean(ly)
    spread = sum((x - mean_x) ** 2 for x in lx)
    if not spread:
        raise ValueError(f"no slope through {list(xs)}")
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(lx, ly, strict=True)) / spread


def spread(values: Sequence[float]) -> float:
    """Return how far the largest is above the smallest, as a part of the smallest."""
    return max(values) / min(values) - 1


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table and of the slopes."""
    yield "| series | x | requests | steps | operations | CPU s, min / median / max | ns each |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for r in rows:
        three = " / ".join(f"{float(r[f'cpu_s_{w}']):,.2f}" for w in ("min", "median", "max"))
        counts = " | ".join(f"{int(r[w]):,}" for w in ("x", "requests", "steps", "operations"))
        yield f"| {r['series']} | {counts} | {three} | {float(r['ns_per_operation']):,.1f} |"
    yield ""
    for series in dict.fromkeys(r["series"] for r in rows):
        yield f"* {series}: {summary([r for r in rows if r['series'] == series])}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return the slopes of one series in words; nothing to say about a single point."""
    if len(rows) < 2:
        return "one point"
    xs = [float(r["x"]) for r in rows]
    seconds = [float(r["cpu_s_median"]) for r in rows]
    per_operation = [float(r["ns_per_operation"]) for r in rows]
    return (
        f"slope of the time {slope(xs, seconds):.3f}, of the time per operation "
        f"{slope(xs, per_operation):.3f}, which varies by {spread(per_operation):.1%}"
    )


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw seconds and nanoseconds per operation over each series' variable, log-log."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(r["series"] for r in rows))
    figure = Figure(figsize=(3.4 * len(names), 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        chosen = [r for r in rows if r["series"] == name]
        for line, (key, unit) in enumerate(
            (("cpu_s_median", "CPU seconds"), ("ns_per_operation", "ns per block operation"))
        ):
            _panel(axes[line, column], chosen, key, unit if column == 0 else "")
        axes[1, column].set_xlabel(LABELS[name])
    figure.savefig(path, dpi=130)


def _panel(axes: Any, rows: Sequence[dict[str, Any]], key: str, unit: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    xs, ys = ([float(r[k]) for r in rows] for k in ("x", key))
    axes.plot(xs, ys, "o-", color="#2166ac")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylabel(unit)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25, which="both")
    # A time that does not grow would fill the panel with its noise.
    axes.set_ylim(min(ys) / 2, max(ys) * 2)
    if len(rows) > 1:
        axes.set_title(f"slope {slope(xs, ys):.2f}", fontsize=10)
