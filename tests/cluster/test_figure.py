"""The figure that compares routers: what is on it, and what it says of nothing."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from sim.plots.routers import draw


def summary(router: str, ttft: float | None = 1.0, hit_rate: float | None = 0.5):
    ranks = {f"ttft_p{p}_s": ttft and ttft * p for p in (50, 90, 99)}
    return {
        "router": router,
        "num_replicas": 4,
        "scenario": {"model": "m", "workload": {"name": "w"}},
        "totals": {"prefix_hit_rate": hit_rate, **ranks},
        "imbalance": {"prefill_tokens_max_over_mean": 1.25, "running_max_over_mean": 1.5},
    }


def drawn(*summaries):
    figure = Figure()
    draw(summaries, figure)
    figure.canvas.draw()
    return figure


def test_each_router_has_a_row_and_each_panel_a_quantity():
    figure = drawn(summary("round_robin"), summary("prefix_aware:delay_ms=50", hit_rate=0.25))
    left, middle, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == [
        "round_robin",
        "prefix_aware\ndelay_ms=50",
    ]
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first router is on top
    assert [bar.get_width() for bar in left.patches] == [50.0, 25.0]
    labels = [text.get_text() for text in middle.get_legend().get_texts()]
    assert labels == ["p50", "p90", "p99"]
    assert left.get_xlabel().endswith("[%]")
    assert middle.get_xlabel().endswith("[s]")
    assert right.get_xlabel() == "fullest replica / mean"
    assert figure.get_suptitle() == "Routers before 4 replicas of m, w"


@pytest.mark.parametrize("summaries", [(), (summary("session", None, None),)])
def test_nothing_to_show_is_said(summaries):
    texts = [text.get_text() for axes in drawn(*summaries).axes for text in axes.texts]
    assert {"no routers to compare", "no request got a token"} & set(texts)
