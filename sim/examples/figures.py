"""Drawings of examples as files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sim.examples.example import Example
from sim.plots.figure import STYLE

_NO_DATES = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def save_figures(examples: Iterable[Example], folder: Path) -> list[Path]:
    """Draw each example into ``folder`` as SVG and PNG, and return the files.

    Equal examples give equal bytes for one version of matplotlib, as ``sim.plots.save_figures``.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.style.context(["default", STYLE]):
        for example in examples:
            figure = Figure(figsize=example.size)
            example.draw(figure)
            for kind, metadata in _NO_DATES.items():
                files.append(folder / f"{example.name}.{kind}")
                figure.savefig(files[-1], format=kind, metadata=metadata)
    return files
