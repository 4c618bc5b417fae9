"""Figures of a run, and how any figure is saved.

matplotlib is imported when a figure is drawn, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sim.plots.figure import SIZE_INCHES, STYLE, Drawable, ResultFigure
from sim.plots.hit_rate import HIT_RATE
from sim.plots.latency import LATENCY
from sim.plots.memory import MEMORY
from sim.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: Registry[ResultFigure] = Registry(
    "figure", {"memory": MEMORY, "latency": LATENCY, "hit_rate": HIT_RATE}
)

_NO_DATES = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def save_figures(result: Drawable, folder: Path) -> list[Path]:
    """Draw every registered figure into ``folder`` as SVG and PNG, and return the files.

    Equal results give equal bytes for one version of matplotlib: the user's own matplotlib
    settings are not read, and neither format stores a date.
    """
    drawn = (
        save_figure(lambda figure, draw=entry.draw: draw(result, figure), folder, name)
        for name, entry in FIGURES.items()
    )
    return [path for files in drawn for path in files]


def save_figure(
    draw: Callable[[Figure], None],
    folder: Path,
    name: str,
    size_inches: tuple[float, float] = SIZE_INCHES,
) -> list[Path]:
    """Draw one figure into ``folder`` as ``name.svg`` and ``name.png``, and return the files."""
    import matplotlib.style
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=size_inches)
        draw(figure)
        for kind, metadata in _NO_DATES.items():
            files.append(folder / f"{name}.{kind}")
            figure.savefig(files[-1], format=kind, metadata=metadata)
    return files
