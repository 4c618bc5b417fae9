"""What a metric is, and the few statistics that metrics are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from sim.metrics.run_tables import RunTables

Value = float | int | None


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
    rank = max(1, -(-percent * len(values) // 100))
    return sorted(values)[rank - 1]


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


def distribution(
    name: str, symbol: str, over: str, values: Callable[[RunTables], list[float]], vllm: str
) -> list[Metric]:
    """Return mean, p50, p90 and p99 of a duration in seconds as four metrics."""
    lines = [Metric(f"{name}_mean_s", "s", f"mean of {symbol} over {over}", _mean_of(values), vllm)]
    for percent in (50, 90, 99):
        formula = f"P{percent} of {symbol} over {over}"
        lines.append(Metric(f"{name}_p{percent}_s", "s", formula, _rank_of(values, percent), vllm))
    return lines


def _mean_of(values: Callable[[RunTables], list[float]]) -> Callable[[RunTables], Value]:
    return lambda tables: mean(values(tables))


def _rank_of(
    values: Callable[[RunTables], list[float]], percent: int
) -> Callable[[RunTables], Value]:
    return lambda tables: nearest_rank(values(tables), percent)
