"""What routers make of the same requests: hit rate, time to first token, balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.plots.figure import BLUE, DARK_GREY, ORANGE, SKY, VERMILION, say_empty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (12.0, 4.8)

_RANKS = ((50, BLUE, "o", -0.16), (90, SKY, "s", 0.28), (99, VERMILION, "D", -0.16))
_SPREADS = (("prefill_tokens_max_over_mean", ORANGE, "prefill tokens computed"),
            ("running_max_over_mean", BLUE, "running requests, over time"))  # fmt: skip
_ROOM = 1.22  # for the numbers behind the bars


def draw(summaries: Sequence[Mapping[str, Any]], figure: Figure) -> None:
    """Draw three panels with a row per router, from the contents of ``cluster.json``."""
    panels = figure.subplots(1, 3, sharey=True)
    figure.suptitle(_title(summaries), x=0.01, ha="left", fontsize=13)
    if not summaries:
        say_empty(panels[1], "no routers to compare")
        return
    _draw_hit_rate(panels[0], summaries)
    _draw_ttft(panels[1], summaries)
    _draw_balance(panels[2], summaries)
    names = [str(summary["router"]).replace(":", "\n") for summary in summaries]
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    for axes in panels:
        axes.grid(axis="y", visible=False)


def _title(summaries: Sequence[Mapping[str, Any]]) -> str:
    if not summaries:
        return "Routers"
    first = summaries[0]
    scenario = first["scenario"]
    model, workload = scenario["model"], scenario["workload"]["name"]
    return f"Routers before {first['num_replicas']} replicas of {model}, {workload}"


def _draw_hit_rate(axes: Axes, summaries: Sequence[Mapping[str, Any]]) -> None:
    axes.set_xlabel("prefix hit rate [%]")
    rates = [100 * (summary["totals"]["prefix_hit_rate"] or 0) for summary in summaries]
    axes.barh(range(len(rates)), rates, 0.55, color=BLUE)
    for place, rate in enumerate(rates):
        axes.text(rate, place, f" {rate:.1f}", va="center", fontsize=11.5)
    axes.set_xlim(0, _ROOM * max(*rates, 1.0))


def _draw_ttft(axes: Axes, summaries: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    axes.set_xlabel("time to first token [s]")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for percent, colour, marker, shift in _RANKS:
        found = [summary["totals"][f"ttft_p{percent}_s"] for summary in summaries]
        pairs = [(value, place) for place, value in enumerate(found) if value]
        if pairs:
            axes.plot(*zip(*pairs, strict=True), marker, color=colour, label=f"p{percent}")
            for value, place in pairs:
                axes.text(value, place + shift, f"{value:.3g}", ha="center", fontsize=10)
    if not axes.lines:
        say_empty(axes, "no request got a token")
        return
    axes.margins(x=0.16)
    _legend(axes, 3)


def _draw_balance(axes: Axes, summaries: Sequence[Mapping[str, Any]]) -> None:
    axes.set_xlabel("fullest replica / mean")
    height = 0.32
    largest = 1.0
    for number, (name, colour, label) in enumerate(_SPREADS):
        values = [summary["imbalance"][name] or 0.0 for summary in summaries]
        largest = max(largest, *values)
        middles = [place + (number - 0.5) * height for place in range(len(values))]
        axes.barh(middles, values, height, color=colour, label=label)
        for value, middle in zip(values, middles, strict=True):
            axes.text(value, middle, f" {value:.2f}", va="center", fontsize=10)
    axes.axvline(1, color=DARK_GREY, linewidth=1, linestyle="--")
    axes.set_xlim(0, _ROOM * largest)
    _legend(axes, 1)


def _legend(axes: Axes, num_columns: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=num_columns, borderaxespad=0.1,
                handlelength=1.2, columnspacing=1.0, handletextpad=0.4)  # fmt: skip
