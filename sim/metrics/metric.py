"""What a metric is, and the few statistics that metrics are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum

import numpy as np

from sim.metrics.run_tables import RunTables
from sim.units import NS_PER_S

Value = float | int | None

_PERCENTS = (50, 90, 99)
_EXACT, _INT64 = 1 << 53, 1 << 63  # below these, float64 and int64 hold every integer
_CHUNK = 1 << 12


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run: its name, unit, formula (symbols: ``docs/metrics.md``) and function.

    The function returns None where the tables hold nothing to compute it from, never NaN. ``vllm``
    names the metric of vLLM that counts the same thing, if there is one.
    """

    name: str
    unit: str
    formula: str
    value: Callable[[RunTables], Value]
    vllm: str = ""


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean, or None of nothing."""
    return fsum(values) / len(values) if values else None


def nearest_rank(values: Sequence[float], percent: int) -> float | None:
    """Return the nearest-rank percentile: the smallest value that ``percent`` % do not exceed.

    It is the value of rank ceil(percent / 100 x n) in ascending order, so always one of the values.

    >>> nearest_rank([15, 20, 35, 40, 50], 30), nearest_rank([15, 20, 35, 40, 50], 100)
    (20, 50)
    """
    if not values:
        return None
    return sorted(values)[_rank(len(values), percent) - 1]


def _rank(num_values: int, percent: int) -> int:
    return max(1, -(-percent * num_values // 100))


def weighted_mean(values: Sequence[int], weights: Sequence[int]) -> float | None:
    """Return the mean of values that each hold for a time, or None of nothing.

    Where all weights are 0 the plain mean is taken. Sums are exact integers; the only rounding is
    the division at the end.

    >>> weighted_mean([10, 0], [1, 3])
    2.5
    """
    if not values:
        return None
    total = sum(weights)
    if total == 0:
        return mean(values)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / total


def exact_dot(values: np.ndarray, weights: np.ndarray) -> int:
    """Return the sum of products of two int64 arrays, whatever its size.

    >>> exact_dot(np.array([2**40, 1]), np.array([2**40, 1])) == 2**80 + 1
    True
    """
    if len(values) < 2:
        return sum(v * w for v, w in zip(values.tolist(), weights.tolist(), strict=True))
    bounds = [max(int(array.max()), -int(array.min())) for array in (values, weights)]
    if bounds[1] * len(weights) < _INT64 and bounds[0] * int(np.abs(weights).sum()) < _INT64:
        return int(np.dot(values, weights))
    half = len(values) // 2
    return exact_dot(values[:half], weights[:half]) + exact_dot(values[half:], weights[half:])


def to_seconds(spans_ns: np.ndarray) -> np.ndarray:
    """Return int64 nanoseconds as float64 seconds, each rounded once, as Python's ``/`` does."""
    if not len(spans_ns) or -_EXACT < int(spans_ns.min()) <= int(spans_ns.max()) < _EXACT:
        return spans_ns / NS_PER_S
    return np.array([span / NS_PER_S for span in spans_ns.tolist()])


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and percentiles of a duration in seconds; None of nothing."""

    mean: float | None
    percentiles: dict[int, float | None]

    @classmethod
    def of(cls, seconds: np.ndarray) -> Statistics:
        """Return those of ``seconds``, whose order is changed.

        The mean is that of the exact sum: the order and the chunks do not matter.
        """
        num = len(seconds)
        if not num:
            return cls(None, dict.fromkeys(_PERCENTS))
        places = {percent: _rank(num, percent) - 1 for percent in _PERCENTS}
        seconds.partition(sorted(set(places.values())))
        chunks = (seconds[start : start + _CHUNK].tolist() for start in range(0, num, _CHUNK))
        total = fsum(chain.from_iterable(chunks))
        return cls(total / num, {percent: float(seconds[at]) for percent, at in places.items()})


def distribution(
    name: str, symbol: str, over: str, seconds: Callable[[RunTables], np.ndarray], vllm: str
) -> list[Metric]:
    """Return mean, p50, p90 and p99 of a duration in seconds as four metrics."""

    def statistics(tables: RunTables) -> Statistics:
        return Statistics.of(seconds(tables))

    def percentile(percent: int) -> Callable[[RunTables], Value]:
        return lambda tables: tables.once(statistics).percentiles[percent]

    def value_of_mean(tables: RunTables) -> Value:
        return tables.once(statistics).mean

    lines = [Metric(f"{name}_mean_s", "s", f"mean of {symbol} over {over}", value_of_mean, vllm)]
    for percent in _PERCENTS:
        formula = f"P{percent} of {symbol} over {over}"
        lines.append(Metric(f"{name}_p{percent}_s", "s", formula, percentile(percent), vllm))
    return lines
