"""Block tables drawn as rows of numbered boxes above the tokens that they cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.examples.allocation.toy_pool import BLOCK_SIZE
from sim.examples.blocks_drawing import GROUP_COLOURS, Cell, draw_rows, frame, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Sequence[int | None]]


def draw_block_tables(
    axes: Axes, title: str, labels: Sequence[str], rows: Rows, left: float
) -> None:
    """Draw one table a row; ``left`` is where the space for the labels begins."""
    cells = [
        (label, [_cell(number, GROUP_COLOURS[idx]) for number in row])
        for idx, (label, row) in enumerate(zip(labels, rows, strict=True))
    ]
    bottom = draw_rows(axes, cells, font_size=12)
    for idx in range(len(rows[0])):
        first = idx * BLOCK_SIZE
        label = f"{first}-{first + BLOCK_SIZE - 1}"
        axes.text(idx + 0.5, bottom + 0.1, label, ha="center", va="top", fontsize=10)
    note(axes, 0, bottom + 0.55, "tokens of each block; / = no block: no later token reads there")
    frame(axes, title, left=left, right=len(rows[0]) + 0.1, bottom=bottom + 1.1)


def _cell(number: int | None, colour: str) -> Cell:
    return Cell("/", None) if number is None else Cell(str(number), colour)
