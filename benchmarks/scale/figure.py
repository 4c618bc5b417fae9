"""Requests per second of every side, by model, on a logarithmic axis.

python -m benchmarks.scale.figure benchmarks/results/scale.csv
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

STYLES = {
    "vllm manager (total)": ("vLLM's manager", "o", "#b2182b"),
    "vllm scheduler (total)": ("vLLM's scheduler", "s", "#ef8a62"),
    "kvsim python": ("kvsim, Python", "o", "#67a9cf"),
    "kvsim compiled": ("kvsim, compiled", "D", "#2166ac"),
    "kvsim compiled (core)": ("kvsim, compiled, core alone", "d", "#053061"),
}
LINES = {
    "dynamo mocker": ("--", "#4d4d4d"),
    "dynamo mocker, 16": ("-.", "#4d4d4d"),
    "kvcache-simulator": (":", "#4d4d4d"),
}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the figure: a row per model, whiskers from the slowest to the fastest repeat."""
    known = [row for row in rows if row["requests_per_s"] != ""]
    models = list(dict.fromkeys(row["model"] for row in known if row["side"] in STYLES))
    figure = Figure(figsize=(9, 1.6 + 0.55 * len(models)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side, (label, marker, colour) in STYLES.items():
        _points(axes, [r for r in known if r["side"] == side], models, label, marker, colour)
    for row in known:
        if row["side"] in LINES:
            _line(axes, row)
    axes.set_xscale("log")
    axes.set_xlabel("requests per second of CPU time (each side's own work, see the table)")
    axes.set_yticks(range(len(models)), [model.partition("--")[2] for model in models])
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.grid(axis="x", which="both", alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def _points(
    axes: Axes, rows: list[dict[str, Any]], models: list[str], label: str, marker: str, colour: str
) -> None:
    if not rows:
        return
    places = [models.index(row["model"]) for row in rows]
    rates = [float(row["requests_per_s"]) for row in rows]
    slow = [float(r["requests"]) / float(r["s_max"]) for r in rows]
    fast = [float(r["requests"]) / float(r["s_min"]) for r in rows]
    below = [max(0.0, rate - low) for rate, low in zip(rates, slow, strict=True)]
    above = [max(0.0, high - rate) for rate, high in zip(rates, fast, strict=True)]
    axes.errorbar(
        rates, places, xerr=(below, above), fmt=marker, color=colour, label=label, capsize=3
    )


def _line(axes: Axes, row: dict[str, Any]) -> None:
    style, colour = LINES[row["side"]]
    label = f"{row['side']} (one chain)"
    axes.axvline(float(row["requests_per_s"]), linestyle=style, color=colour, label=label)


if __name__ == "__main__":
    from benchmarks.bench_scale import read_csv

    source = Path(sys.argv[1])
    draw(read_csv(source), source.with_suffix(".png"))
