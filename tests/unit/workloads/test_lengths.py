from math import erf, log, sqrt

import numpy as np
import pytest
from pydantic import ValidationError

from workloads.lengths import Lengths
from workloads.streams import Streams

NUM_DRAWS = 4000


def draws(lengths: Lengths, seed: int = 1) -> np.ndarray:
    rng = Streams(seed).child("test")
    return np.array([lengths.draw(rng) for _ in range(NUM_DRAWS)])


def cut_mean(mean: float, cv: float, maximum: float) -> float:
    """E[min(X, c)] of a lognormal X: mean Phi(d - s) + c (1 - Phi(d)), d = (ln c - m) / s."""

    def phi(x: float) -> float:
        return (1 + erf(x / sqrt(2))) / 2

    s = sqrt(log(1 + cv**2))
    d = (log(maximum) - (log(mean) - s**2 / 2)) / s
    return mean * phi(d - s) + maximum * (1 - phi(d))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        (Lengths(mean=500, cv=0.5), 500.0),
        (Lengths(mean=2000.5, cv=1.0), 2000.5),
        (Lengths(mean=4000, cv=0.8, maximum=6000), cut_mean(4000, 0.8, 6000)),
        (Lengths(distribution="uniform", mean=300, cv=0.5), 300.0),
        (Lengths(distribution="uniform", mean=300), 300.0),
    ],
)
def test_mean_is_the_stated_one(lengths, expected):
    # Cutting makes the spread smaller, so mean x cv bounds the deviation from above. Five
    # standard errors, and half a token for rounding.
    standard_error = lengths.mean * lengths.cv / sqrt(NUM_DRAWS)
    assert abs(draws(lengths).mean() - expected) <= 5 * standard_error + 0.5


@pytest.mark.parametrize(
    ("lengths", "kurtosis"),
    [
        (Lengths(distribution="uniform", mean=1000, cv=0.4), 1.8),
        # lognormal, w = 1 + cv^2: kurtosis w^4 + 2 w^3 + 3 w^2 - 3
        (Lengths(mean=1000, cv=0.3), 1.09**4 + 2 * 1.09**3 + 3 * 1.09**2 - 3),
    ],
)
def test_coefficient_of_variation_is_the_stated_one(lengths, kurtosis):
    found = draws(lengths)
    # standard error of a standard deviation: s sqrt((kurtosis - 1) / 4 n)
    standard_error = lengths.cv * sqrt((kurtosis - 1) / (4 * NUM_DRAWS))
    mean_error = lengths.cv**2 / sqrt(NUM_DRAWS)
    assert abs(found.std() / found.mean() - lengths.cv) < 5 * (standard_error + mean_error)


def test_uniform_lies_between_its_bounds():
    # 100 (1 - sqrt(3) / 2) = 13.4 and 100 (1 + sqrt(3) / 2) = 186.6, rounded
    found = draws(Lengths(distribution="uniform", mean=100, cv=0.5))
    assert (found.min(), found.max()) == (13, 187)


def test_lengths_are_whole_at_least_one_and_at_most_the_maximum():
    lengths = Lengths(mean=2, cv=3.0, maximum=7)
    rng = Streams(0).child("test")
    found = [lengths.draw(rng) for _ in range(500)]
    assert all(type(n) is int for n in found)
    assert (min(found), max(found)) == (1, 7)


def test_each_draw_takes_one_variate():
    # so a change of one distribution does not move the draws that come after it
    for lengths in (Lengths(mean=9, cv=0.0), Lengths(distribution="uniform", mean=9, cv=0.1)):
        rng, other = Streams(0).child("t"), Streams(0).child("t")
        lengths.draw(rng)
        if lengths.distribution == "uniform":
            other.random()
        else:
            other.standard_normal()
        assert rng.random() == other.random()


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("mean", {"mean": 0}),
        ("mean", {"mean": float("nan")}),
        ("mean", {}),
        ("cv", {"mean": 5, "cv": -0.1}),
        ("cv", {"mean": 5, "cv": 0.6, "distribution": "uniform"}),
        ("maximum", {"mean": 5, "maximum": 0}),
        ("maximum", {"mean": 5, "maximum": 2.0}),
        ("distribution", {"mean": 5, "distribution": "normal"}),
        ("std", {"mean": 5, "std": 1}),
    ],
)
def test_wrong_parameters_are_refused_by_name(field, data):
    with pytest.raises(ValidationError) as caught:
        Lengths(**data)
    assert field in {error["loc"][0] for error in caught.value.errors()}
