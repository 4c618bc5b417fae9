"""Every figure: draws on Agg, says what its axes are, survives an empty run."""

import pytest
from matplotlib.figure import Figure

from sim.plots import FIGURES, save_figures
from tests.unit.metrics.fakes import make_tables, run_like_tables
from tests.unit.test_results import make_result

FULL = make_result(run_like_tables())
EMPTY = make_result(make_tables())
ALL = pytest.mark.parametrize("name", list(FIGURES))


def drawn(name, result):
    figure = Figure()
    FIGURES[name].draw(result, figure)
    figure.canvas.draw()
    return figure


@ALL
def test_axes_name_quantity_and_unit(name):
    axes = drawn(name, FULL).axes
    assert axes
    for ax in axes:
        assert ax.get_xlabel().endswith("]")
        assert ax.get_ylabel() or ax.get_shared_y_axes().joined(ax, axes[0])


@ALL
def test_legend_names_every_line_or_layer(name):
    for ax in drawn(name, FULL).axes:
        assert ax.get_legend() is not None
        assert all(text.get_text() for text in ax.get_legend().get_texts())


@ALL
def test_an_empty_run_is_said_and_not_an_error(name):
    for ax in drawn(name, EMPTY).axes:
        assert [text.get_text() for text in ax.texts]


def test_memory_stacks_up_to_the_whole_memory():
    (ax,) = drawn("memory", FULL).axes
    top = max(path.vertices[:, 1].max() for c in ax.collections for path in c.get_paths())
    assert top == pytest.approx(60)  # GiB
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"live", "free", "out of window", "other (each < 0.1 %)"} <= labels
    assert "lookahead" not in labels  # nothing in it: part of "other"


def test_windowed_hit_rate_ends_at_the_rate_of_the_last_requests():
    (ax,) = drawn("hit_rate", FULL).axes
    recent, total = ax.get_lines()
    frame = FULL.requests.sort_values("first_scheduled_ns")
    last = frame.tail(100)
    assert recent.get_ydata()[-1] == last["cached_tokens"].sum() / last["prompt_tokens"].sum()
    assert total.get_ydata()[-1] == FULL.metrics["prefix_hit_rate"]


def test_latency_marks_the_percentiles_of_the_metrics():
    left, right = drawn("latency", FULL).axes
    marked = [line.get_xdata()[0] for line in left.get_lines()[1:]]
    assert marked == [FULL.metrics["ttft_p50_s"], FULL.metrics["ttft_p99_s"]]
    marked = [line.get_xdata()[0] for line in right.get_lines()[1:]]
    assert marked == [1000 * FULL.metrics["tpot_p50_s"], 1000 * FULL.metrics["tpot_p99_s"]]


def test_figures_are_saved_in_both_formats(tmp_path):
    files = save_figures(FULL, tmp_path / "figures")
    assert [p.name for p in files] == [f"{n}.{kind}" for n in FIGURES for kind in ("svg", "png")]
    assert all(p.stat().st_size > 1000 for p in files)


def test_drawing_needs_no_display_and_leaves_no_global_figure():
    import matplotlib

    before = dict(matplotlib.rcParams)
    drawn("memory", FULL)
    assert dict(matplotlib.rcParams) == before
