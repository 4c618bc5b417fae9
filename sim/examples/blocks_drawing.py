"""Cells in rows: what all drawings of the examples are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.plots.figure import BLUE, DARK_GREY, GREEN, LIGHT_GREY, ORANGE, PURPLE, SKY, YELLOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, "#8C6D46", "#CC6677")
DARK = {BLUE, GREEN, "#8C6D46"}
GAP = 0.06
PADDING = LIGHT_GREY


@dataclass(frozen=True, slots=True)
class Cell:
    """One box of a row: text, colour (None for an empty, dashed box), and width in cells."""

    text: str
    colour: str | None
    width: float = 1.0


def draw_rows(
    axes: Axes,
    rows: Sequence[tuple[str, Iterable[Cell]]],
    *,
    font_size: float = 10,
    label_size: float = 11,
    top: float = 0.0,
    height: float = 1.0,
) -> float:
    """Draw labelled rows of boxes from ``top`` downwards; return where the next row would start."""
    for label, cells in rows:
        axes.text(-0.25, top + height / 2, label, ha="right", va="center", fontsize=label_size)
        left = 0.0
        for cell in cells:
            _draw_cell(axes, cell, left, top, height, font_size)
            left += cell.width
        top += height
    return top


def _draw_cell(
    axes: Axes, cell: Cell, left: float, top: float, height: float, font_size: float
) -> None:
    from matplotlib.patches import Rectangle

    empty = cell.colour is None
    box = Rectangle(
        (left + GAP / 2, top + GAP),
        cell.width - GAP,
        height - 2 * GAP,
        facecolor="white" if empty else cell.colour,
        edgecolor="#999999" if empty else "black",
        linewidth=0.8,
        linestyle="--" if empty else "-",
    )
    axes.add_patch(box)
    colour = "white" if cell.colour in DARK else ("#777777" if empty else "black")
    centre = (left + cell.width / 2, top + height / 2)
    axes.text(*centre, cell.text, ha="center", va="center", fontsize=font_size, color=colour)


def frame(axes: Axes, title: str, *, right: float, bottom: float, left: float) -> None:
    """Fit axes without ticks around the rows; y grows downwards."""
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, -0.15)
    axes.set_axis_off()
    axes.set_title(title, loc="left")


def note(axes: Axes, x: float, y: float, text: str, size: float = 10.5) -> None:
    """Write a line of text below or beside the rows."""
    axes.text(x, y, text, ha="left", va="top", fontsize=size, color=DARK_GREY)
