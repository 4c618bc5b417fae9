"""Two labels or more on every axis, whatever the range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sim.plots.log_axis import log_ticks, set_log_axis, view

SECONDS = st.floats(1e-9, 1e6)


@given(SECONDS, SECONDS)
def test_two_to_six_labels_lie_in_view(one, other):
    first, last = view(min(one, other), max(one, other))
    ticks = log_ticks(first, last)
    assert 2 <= len(ticks) <= 6
    assert ticks == sorted(set(ticks))
    assert first <= ticks[0] < ticks[-1] <= last
    assert len({f"{tick:,.10g}" for tick in ticks}) == len(ticks)  # told apart by their labels


@given(SECONDS, SECONDS)
def test_all_values_are_in_view(one, other):
    first, last = view(min(one, other), max(one, other))
    assert first < min(one, other) <= max(one, other) < last


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [(0.01, 10, ["0.01", "0.1", "1", "10"]), (20, 20, ["18", "20", "22"]),
     (0, 0, ["0.001", "0.01", "0.1", "1"]), (1000, 9000, ["1,000", "2,000", "5,000"])],
)  # fmt: skip
def test_labels_are_plain_numbers(low, high, labels):
    axes = Figure().subplots()
    set_log_axis(axes, low, high)
    assert [label.get_text() for label in axes.get_xticklabels()] == labels
