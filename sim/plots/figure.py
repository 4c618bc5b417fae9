"""What a figure is, and the look that all figures share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sim.metrics.run_tables import RunTables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette (jfly.uni-koeln.de/color), told apart with any colour vision.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, YELLOW, PURPLE, BLACK = "#56B4E9", "#F0E442", "#CC79A7", "#000000"
LIGHT_GREY, MIDDLE_GREY, DARK_GREY = "#E8E8E8", "#B0B0B0", "#707070"

SIZE_INCHES = (8.0, 4.6)
STYLE: dict[str, Any] = {
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.8,
    "legend.fontsize": 11.5,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
    "svg.hashsalt": "hybrid-kv-sim",
}


class Drawable(Protocol):
    """What a figure reads of a ``RunResult``."""

    @property
    def run_id(self) -> str:
        """Names the run in the title."""

    @property
    def scenario(self) -> Any:
        """Its model and workload are named in the title."""

    @property
    def tables(self) -> RunTables:
        """All tables."""

    @property
    def requests(self) -> pd.DataFrame:
        """The request table."""

    @property
    def waste(self) -> pd.DataFrame:
        """The waste table."""


@dataclass(frozen=True, slots=True)
class ResultFigure:
    """One entry of ``FIGURES``: ``draw(result, figure)`` fills an empty matplotlib figure."""

    name: str
    summary: str
    draw: Callable[[Drawable, Figure], None]


def set_title(figure: Figure, result: Drawable, subject: str) -> None:
    """Write above a figure what it shows and of which run: model, workload and run id."""
    scenario = result.scenario
    run = f"{scenario.model}, {scenario.workload.name}, run {result.run_id}"
    figure.suptitle(f"{subject}\n{run}", x=0.01, ha="left", fontsize=13)


def legend_above(axes: Axes, num_columns: int) -> None:
    """Put the legend between title and axes, where it covers no curve."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=num_columns, borderaxespad=0.1,
        columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def say_empty(axes: Axes, reason: str) -> None:
    """Write into empty axes why there is nothing to see."""
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center")
