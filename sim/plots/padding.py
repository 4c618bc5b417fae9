"""What grouping leaves idle, for a set of models and rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.plots.figure import (
    BLACK,
    BLUE,
    DARK_GREY,
    GREEN,
    LIGHT_GREY,
    MIDDLE_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    say_empty,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.layout.comparison import Comparison, Row

RULES = ("vllm", "max_layers", "gcd", "padding_cost", "overhead_bound", "optimal")
"""What is drawn if nothing is named."""

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, DARK_GREY, MIDDLE_GREY)
_BAR = 0.8  # share of a model's row that its bars fill
_INCHES_PER_BAR = 0.22


def size_inches(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """Return a figure's width and height: every bar has room for its label."""
    bars = sum(len(c.rows) for c in comparisons) / _BAR
    return 10.5, max(3.6, 1.8 + _INCHES_PER_BAR * bars)


def draw(comparisons: Sequence[Comparison], figure: Figure) -> None:
    """Draw a bar for each model and rule: layer padding, and page padding behind it.

    Both are shares of what a request holds, each group weighted with its blocks. The label gives
    the rule and its number of groups, or says that the rule or plan refuses the model.
    """
    axes = figure.subplots()
    axes.set_xlabel("share of the bytes that a request holds [%]")
    axes.grid(axis="y", visible=False)
    axes.set_title("Padding by grouping rule", loc="left")
    if not comparisons or not comparisons[0].rows:
        say_empty(axes, "no models or no rules to compare")
        return
    for idx, comparison in enumerate(comparisons):
        _draw_model(axes, comparison, len(comparisons) - 1 - idx)
    labels = [f"{c.model}\n{c.lengths} tokens" for c in reversed(comparisons)]
    axes.set_yticks(range(len(comparisons)), labels, fontsize=10.5)
    axes.set_ylim(-0.5, len(comparisons) - 0.5)
    right = max(1.0, 1.45 * _longest(comparisons))  # room for the label of the longest bar
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= min(right, 100)])
    axes.set_xlim(0, right)
    _legend(figure)


def _longest(comparisons: Sequence[Comparison]) -> float:
    figures = [row.figures for c in comparisons for row in c.rows if row.figures]
    return max((100 * float(f.idle_share + f.page_padding_share) for f in figures), default=0.0)


def _draw_model(axes: Axes, comparison: Comparison, y: int) -> None:
    height = _BAR / len(comparison.rows)
    for idx, row in enumerate(comparison.rows):
        middle = y + _BAR / 2 - (idx + 0.5) * height
        _draw_bar(axes, row, middle, 0.9 * height, _COLOURS[idx % len(_COLOURS)])


def _draw_bar(axes: Axes, row: Row, middle: float, height: float, colour: str) -> None:
    idle = page = 0.0
    text = f" {row.name}: refused"
    if row.figures is not None:
        idle = 100 * float(row.figures.idle_share)
        page = 100 * float(row.figures.page_padding_share)
        count = row.figures.num_groups
        text = f" {row.name}: {idle:.1f} % in {count} group{'s' if count > 1 else ''}"
    axes.barh(middle, idle, height, color=colour)
    if page:
        axes.barh(middle, page, height, left=idle, color=LIGHT_GREY, edgecolor=DARK_GREY)
    shade = BLACK if row.figures else DARK_GREY
    axes.text(idle + page, middle, text, va="center", fontsize=9, color=shade)


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(color=BLUE, label="layer padding (the label's number), a colour for each rule"),
        Patch(facecolor=LIGHT_GREY, edgecolor=DARK_GREY, label="page padding"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
