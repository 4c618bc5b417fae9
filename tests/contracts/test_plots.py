"""Every figure: draws on Agg, says what its axes are, survives an empty run."""

from dataclasses import replace

import matplotlib.style
import pytest
from matplotlib.figure import Figure

from sim.errors import ConfigError
from sim.plots import FIGURES, save_figures
from sim.plots.figure import STYLE
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


@ALL
def test_title_names_subject_model_workload_and_run(name):
    subject, run = drawn(name, FULL).get_suptitle().split("\n")
    assert subject
    assert run == f"google--gemma-3-27b-it, multi_turn, run {FULL.run_id}"


@ALL
def test_legend_lies_outside_of_what_is_drawn(name):
    with matplotlib.style.context(["default", STYLE]):
        figure = drawn(name, FULL)
    for ax in figure.axes:
        assert not ax.get_legend().get_window_extent().overlaps(ax.get_window_extent())


def test_figures_are_replaced_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    folder = tmp_path / "figures"
    save_figures(EMPTY, folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    broken = {**FIGURES, "hit_rate": replace(FIGURES["hit_rate"], draw=interrupted)}
    monkeypatch.setattr("sim.plots.FIGURES", broken)
    with pytest.raises(KeyboardInterrupt):
        save_figures(FULL, folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert list(tmp_path.iterdir()) == [folder]


def interrupted(result, figure):
    raise KeyboardInterrupt


def test_folder_that_holds_something_else_gets_no_figures(tmp_path):
    (tmp_path / "thesis.txt").write_text("dear")
    with pytest.raises(ConfigError, match="one that holds figures only"):
        save_figures(FULL, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_drawing_needs_no_display_and_leaves_no_global_figure():
    before = dict(matplotlib.rcParams)
    drawn("memory", FULL)
    assert dict(matplotlib.rcParams) == before
