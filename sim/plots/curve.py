"""Hits against capacity: one chain, and a model's groups in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sim.plots.figure import BLUE, VERMILION, legend_above
from sim.plots.log_axis import set_log_axis
from sim.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class DrawableCurve(Protocol):
    """What the figure reads of a curve (``sim.curve.result.Curve``)."""

    @property
    def settings(self) -> dict[str, Any]:
        """Trace, model and block size are named in the title."""

    @property
    def line(self) -> Sequence[tuple[float, float]]:
        """The chain at many capacities, in bytes where there is a model, else in blocks."""

    def of(self, series: str) -> Sequence[Any]:
        """Return the points of ``chain`` or ``groups``."""


def draw(curve: DrawableCurve, figure: Figure) -> None:
    """Draw the share of prompt tokens found over capacity; a sample with its 95 % interval."""
    axes = figure.subplots()
    settings, groups = curve.settings, curve.of("groups")
    unit, of_line = (GIB, "GiB") if groups else (1, f"blocks of {settings['block_size']:,} tokens")
    axes.set(xlabel=f"capacity [{of_line}]", ylabel="hit rate [share of prompt tokens]")
    subject = f"{settings['model']}, " if settings["model"] else ""
    title = f"hits against capacity, one request at a time\n{subject}{settings['trace']}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13)
    if groups:
        _draw_groups(axes, groups, settings["num_groups"])
    _draw_chain(axes, curve, unit)
    asked = [_place(point) / unit for point in (*groups, *curve.of("chain"))]
    set_log_axis(axes, min(asked), max(asked))
    axes.set_ylim(0, 1)
    legend_above(axes, num_columns=3)


def _draw_groups(axes: Axes, points: Sequence[Any], num_groups: int) -> None:
    places = [point.capacity_bytes / GIB for point in points]
    shares = [point.hit_ratio for point in points]
    name = f"{num_groups} groups" if num_groups > 1 else "1 group"
    axes.plot(places, shares, "-o", color=VERMILION, markersize=5, label=name)
    some = [p for p in points if p.num_not_served]
    if some:
        places = [point.capacity_bytes / GIB for point in some]
        hollow = {"markerfacecolor": "white", "markersize": 5, "zorder": 3}
        axes.plot(places, [p.hit_ratio for p in some], "o", color=VERMILION, **hollow,
                  label="some requests do not fit")  # fmt: skip


def _draw_chain(axes: Axes, curve: DrawableCurve, unit: int) -> None:
    points = curve.of("chain")
    places, shares = zip(*curve.line, strict=True) if curve.line else ((), ())
    line = {"color": BLUE, "linestyle": "--" if curve.of("groups") else "-"}
    axes.plot([place / unit for place in places], shares, label="one chain", **line)
    if all(point.hit_tokens_error is None for point in points):
        return
    at = [_place(point) / unit for point in points]
    total = [point.hit_tokens / point.hit_ratio if point.hit_ratio else 1.0 for point in points]
    errors = [p.hit_tokens_error / t for p, t in zip(points, total, strict=True)]
    ratios = [point.hit_ratio for point in points]
    axes.errorbar(at, ratios, errors, fmt="o", color=BLUE, markersize=4, capsize=3,
                  label="95 % interval")  # fmt: skip


def _place(point: Any) -> float:
    return float(point.capacity_blocks if point.capacity_bytes is None else point.capacity_bytes)
