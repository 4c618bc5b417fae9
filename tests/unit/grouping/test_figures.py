"""The two figures: what their marks stand for."""

from fractions import Fraction

import pytest
from matplotlib.figure import Figure

from sim.layout.comparison import compare
from sim.layout.settings import LayoutSettings
from sim.models import load_model
from sim.plots import padding, pareto
from sim.units import GIB

SETTINGS = LayoutSettings(kv_cache_memory_bytes=80 * GIB, max_num_batched_tokens=8192)


def compared(name, names):
    return compare(load_model(name), SETTINGS, names=names)


def drawn(draw, *arguments):
    figure = Figure()
    draw(*arguments, figure)
    figure.canvas.draw()
    return figure.axes[0]


def test_bars_are_the_weighted_shares_and_refusals_are_said():
    models = ["google--gemma-3-27b-it", "Zyphra--Zamba2-7B"]
    made = [compared(name, ["vllm", "multi_layer_page"]) for name in models]
    axes = drawn(padding.draw, made)
    widths = [bar.get_width() for bar in axes.patches]
    gemma, zamba, pages = (
        made[0].row("vllm").figures.idle_share,
        made[1].row("vllm").figures.idle_share,
        made[1].row("vllm").figures.page_padding_share,
    )
    assert widths[:4] == pytest.approx([100 * float(x) for x in (gemma, 0, zamba, pages)])
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts[0] == "vllm: 4.0 % in 7 groups"
    assert texts[1] == "multi_layer_page: refused"
    assert axes.get_xlabel().endswith("[%]")


def test_pareto_marks_rules_at_their_groups_and_idle_bytes():
    sizes = compared("google--gemma-3-27b-it", [f"fixed:size={n}" for n in range(1, 64)])
    rules = compared("google--gemma-3-27b-it", ["vllm", "gcd", "min_layers"])
    axes = drawn(pareto.draw, sizes, rules)
    lines = {line.get_label(): line for line in axes.get_lines()}
    idle = float(Fraction(8 * 577 * 131072, GIB))
    (x,), (y,) = lines["1: vllm, min_layers"].get_data()
    assert (x, y) == (7, pytest.approx(idle))
    assert lines["2: gcd"].get_xdata()[0] == 31
    # nothing on the frontier is beaten in both
    front = list(zip(*lines["no size is better in both"].get_data(), strict=True))
    every = list(zip(*lines["every group size"].get_data(), strict=True))
    assert not any(
        other[0] <= p[0] and other[1] <= p[1] and other != p for p in front for other in every
    )


def test_nothing_to_draw_is_said():
    axes = drawn(padding.draw, [])
    assert [text.get_text() for text in axes.texts] == ["no models or no rules to compare"]
    refused = compared("google--gemma-3-27b-it", ["multi_layer_page"])
    axes = drawn(pareto.draw, refused, refused)
    assert [text.get_text() for text in axes.texts] == ["no group size gives a layout"]
