"""The slopes that the growth benchmark states."""

from __future__ import annotations

import pytest

report = pytest.importorskip("benchmarks.growth_report")


def test_slope_of_a_power_law_is_its_exponent_whatever_the_factor() -> None:
    xs = [10, 100, 1_000, 50_000]
    for exponent in (-0.5, 0.0, 1.0, 1.7):
        assert report.slope(xs, [3 * x**exponent for x in xs]) == pytest.approx(exponent)


def test_slope_weighs_every_point_and_needs_two_places() -> None:
    assert report.slope([1, 10, 100], [1, 10, 10]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no slope"):
        report.slope([4, 4], [1, 2])
    with pytest.raises(ValueError):
        report.slope([1, 2], [0, 1])


def test_spread_is_the_largest_above_the_smallest() -> None:
    assert report.spread([10.0, 11.5, 11.0]) == pytest.approx(0.15)


def test_table_states_slopes_and_a_figure_is_drawn(tmp_path) -> None:
    rows = [
        {"series": "pool", "x": x, "requests": 5, "steps": 7, "operations": 10, "cpu_s_min": y,
         "cpu_s_median": y, "cpu_s_max": y, "ns_per_operation": 30.0}
        for x, y in ((10, 1.0), (100, 10.0))
    ]  # fmt: skip
    lines = list(report.table([*rows, {**rows[0], "series": "groups"}]))
    assert lines[-2].startswith("* pool: slope of the time 1.000, of the time per operation 0.000")
    assert lines[-1] == "* groups: one point"
    report.draw(rows, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000
