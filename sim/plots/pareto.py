"""Idle memory against the number of groups: every group size, and what each rule takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.plots.figure import BLUE, MIDDLE_GREY, VERMILION, say_empty
from sim.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.layout.comparison import Comparison, Row

SIZE_INCHES = (10.5, 5.6)
LARGEST = 128
"""Group sizes up to this one are drawn; larger ones give the groups of the largest bucket."""
Point = tuple[int, float]


def draw(sizes: Comparison, rules: Comparison, figure: Figure) -> None:
    """Draw a dot for each group size, the frontier, and a numbered mark where rules end up.

    sizes: every group size as a row; rules: the rules by name. Idle bytes are those of a request
    of average length, each group weighted with the blocks that it holds.
    """
    axes = figure.subplots()
    axes.set(xlabel="number of groups [groups]", ylabel="idle bytes of a request [GiB]")
    title = f"{sizes.model}: idle memory against groups, requests of {sizes.lengths} tokens"
    axes.set_title(title, loc="left")
    points = sorted({_point(row) for row in sizes.rows if row.figures})
    if not points:
        say_empty(axes, "no group size gives a layout")
        return
    front = frontier(points)
    axes.plot(*zip(*points, strict=True), "o", color=MIDDLE_GREY, label="every group size")
    axes.plot(*zip(*front, strict=True), "-o", color=BLUE, label="no size is better in both")
    _scale(axes, points)
    _name_rules(axes, rules.rows)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=10, markerscale=0.6)


def _point(row: Row) -> Point:
    assert row.figures is not None
    return row.figures.num_groups, float(row.figures.idle_bytes) / GIB


def frontier(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in both, fewest groups first.

    >>> frontier([(2, 9.0), (3, 5.0), (4, 6.0), (5, 0.0)])
    [(2, 9.0), (3, 5.0), (5, 0.0)]
    """
    best: list[Point] = []
    for point in sorted(points):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def _scale(axes: Axes, points: Sequence[Point]) -> None:
    """Both axes logarithmic; idle bytes are linear below their smallest value, down to 0."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.8 * points[0][0], 1.3 * points[-1][0])
    idle = [y for _, y in points if y > 0]
    if idle:
        axes.set_yscale("symlog", linthresh=min(idle))
        axes.set_ylim(-0.3 * min(idle), 2 * max(idle))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _name_rules(axes: Axes, rows: Sequence[Row]) -> None:
    """One number for each place; the legend says which rules are there."""
    names: dict[Point, list[str]] = {}
    for row in rows:
        if row.figures:
            names.setdefault(_point(row), []).append(row.name)
    for idx, (point, there) in enumerate(sorted(names.items()), 1):
        lines = [", ".join(there[n : n + 2]) for n in range(0, len(there), 2)]
        label = f"{idx}: " + ",\n    ".join(lines)
        axes.plot(*point, "o", color=VERMILION, markersize=15, label=label, zorder=3)
        axes.annotate(str(idx), point, color="white", ha="center", va="center", fontsize=9)
