"""A logarithmic axis that always has labels, however narrow or wide its range."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARGIN = 1.03  # to each side of the values
_LEAST_RATIO = 1.2  # of the ends of the axis: less would show noise as a wide curve
_MOST_TICKS = 6
_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))


def set_log_axis(axes: Axes, low: float, high: float) -> None:
    """Make x logarithmic, show ``low`` to ``high``, with plain numbers at two to six places.

    Values must be at least 0; a 0 has no place on the axis and is left of it.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    first, last = view(low, high)
    ticks = log_ticks(first, last)
    axes.set_xscale("log")
    axes.set_xlim(first, last)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:,.10g}" for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())


def view(low: float, high: float) -> tuple[float, float]:
    """Return the ends of the axis for positive values from ``low`` to ``high``.

    >>> view(1.0, 100.0) == (1 / 1.03, 103.0)
    True
    """
    high = high or 1.0
    low = low or high / 1000
    if high < low * _LEAST_RATIO:
        middle = (low * high) ** 0.5
        low, high = middle / _LEAST_RATIO**0.5, middle * _LEAST_RATIO**0.5
    return low / _MARGIN, high * _MARGIN


def log_ticks(first: float, last: float) -> list[float]:
    """Return two to six round numbers in [first, last]; the ends are a factor 1.2 apart or more.

    Powers of ten if there are enough of them, else also round numbers between these; in a range
    too narrow for that, equal steps.

    >>> log_ticks(0.5, 2000.0), log_ticks(9.0, 40.0), log_ticks(20.6, 21.9)
    ([1.0, 10.0, 100.0, 1000.0], [10.0, 15.0, 20.0, 30.0], [21.0, 21.5])
    """
    for steps in _STEPS:
        ticks = _between(first, last, steps)
        if len(ticks) >= 3:
            return ticks[:: ceil(len(ticks) / _MOST_TICKS)]
    return _equal_steps(first, last)


def _between(first: float, last: float, steps: tuple[float, ...]) -> list[float]:
    decades = range(floor(log10(first)), ceil(log10(last)) + 1)
    places = (float(f"{step}e{decade}") for decade in decades for step in steps)
    return [place for place in places if first <= place <= last]


def _equal_steps(first: float, last: float) -> list[float]:
    """At most half of the range is one step, so two multiples of it lie inside."""
    most = (last - first) / 2
    decade = floor(log10(most))
    step = max(float(f"{s}e{decade}") for s in (1, 2, 5) if float(f"{s}e{decade}") <= most)
    numbers = range(ceil(first / step), floor(last / step) + 1)
    return [round(number * step, 12 - decade) for number in numbers]
