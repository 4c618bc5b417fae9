"""Figures of a run, and how any figure is saved.

matplotlib is imported when a figure is drawn, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import ConfigError
from sim.plots.figure import SIZE_INCHES, STYLE, Drawable, ResultFigure
from sim.plots.hit_rate import HIT_RATE
from sim.plots.latency import LATENCY
from sim.plots.memory import MEMORY
from sim.registry import Registry
from sim.result_folder import new_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: Registry[ResultFigure] = Registry(
    "figure", {"memory": MEMORY, "latency": LATENCY, "hit_rate": HIT_RATE}
)

_NO_DATES = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def figure_files() -> list[str]:
    """Return the names of the files that ``save_figures`` writes; nothing is drawn."""
    return [f"{name}.{kind}" for name in FIGURES for kind in _NO_DATES]


def save_figures(result: Drawable, folder: Path) -> list[Path]:
    """Draw all figures into ``folder``, which appears or changes as a whole; return the files.

    Raises
    ------
    ConfigError
        The folder holds something else than figures.
    """
    if folder.exists() and not _is_for_figures(folder):
        allowed = "a new or empty folder, or one that holds figures only"
        raise ConfigError.one("out", str(folder), allowed)
    with new_folder(folder.resolve()) as temporary:
        names = [path.name for path in draw_figures(result, temporary)]
    return [folder / name for name in names]


def _is_for_figures(folder: Path) -> bool:
    known = set(figure_files())
    return folder.is_dir() and all(path.name in known for path in folder.iterdir())


def draw_figures(result: Drawable, folder: Path) -> list[Path]:
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
