"""A sampled curve: the true one lies within the stated error as often as stated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.curve.blocks import Batch, batches
from sim.curve.hit_curve import HitCurve
from sim.curve.numbering import Numbering
from sim.curve.reading import listed_batches
from sim.curve.sampling import CONFIDENCE, NUM_PARTS, SampledCurve, hashed, smallest_capacity
from sim.curve.stack_distances import DEFINITIONS
from tests.curve.made_traces import made_rows
from workloads.mooncake import MooncakeParams

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
SEEDS = 50
STUDENT = 2.131  # standard errors in half an interval of 95 %, with 15 degrees of freedom
LEAST_COVERAGE = 0.90  # of a nominal 0.95: the curves of one trace are a few dependent values


def made(block_size: int = 32) -> list[Batch]:
    rows = made_rows(11, 2500, block_size)
    columns = batches((r["hash_ids"], len(r["hash_ids"]), r["input_length"]) for r in rows)
    return [Batch(*c) for c in columns]


def public(name: str, block_size: int) -> list[Batch]:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not beside the checkout")
    return list(listed_batches(MooncakeParams(path=path, block_size=block_size)))


def exact_curve(made_batches: list[Batch], block_size: int) -> HitCurve:
    curve, numbering = HitCurve(DEFINITIONS["leaf_first"], block_size), Numbering()
    for batch in made_batches:
        curve.add(batch._replace(ids=numbering.of(batch.ids)))
    return curve


def sampled_curve(made_batches, block_size: int, ratio: float, seed: int) -> SampledCurve:
    curve = SampledCurve(block_size, ratio, seed)
    for batch in made_batches:
        curve.add(batch)
    return curve


def coverage(made_batches: list[Batch], block_size: int, ratio: float) -> tuple[float, float]:
    """Return the share of true values within the stated error, and the size of true errors.

    Over ``SEEDS`` samples and twelve capacities, in blocks and in tokens. The size is the root of
    the mean square of true errors in stated standard errors: 1 where they are what they should be.
    """
    exact = exact_curve(made_batches, block_size)
    first = smallest_capacity(ratio)
    capacities = np.geomspace(first, exact.num_distinct, 12).astype(int).tolist()
    in_errors = []
    for seed in range(SEEDS):
        sampled = sampled_curve(made_batches, block_size, ratio, seed)
        for name in ("hits", "hit_tokens"):
            estimate = getattr(sampled, name)(capacities)
            in_errors.append((estimate.value - getattr(exact, name)(capacities)) / estimate.error)
    size = STUDENT * np.sqrt(np.mean(np.square(in_errors)))
    return float(np.mean(np.abs(in_errors) <= 1)), float(size)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.1, pytest.param(0.3, marks=pytest.mark.compiled)])
def test_the_true_curve_is_within_the_error_as_often_as_stated(ratio):
    share, size = coverage(made(), 32, ratio)
    assert share >= LEAST_COVERAGE
    assert 0.7 <= size <= 1.3


@pytest.mark.traces
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("name", "block_size", "ratio"),
    [
        ("mooncake_conversation_trace.jsonl.gz", 512, 0.01),
        ("mooncake_conversation_trace.jsonl.gz", 512, 0.1),
        ("mooncake_synthetic_trace.jsonl.gz", 512, 0.05),
        ("derived_lmcache_agent_magagent_cl100k_blk16.jsonl.gz", 16, 0.1),
        ("derived_kvcachetester_subset60_merged.jsonl.gz", 64, 0.05),
    ],
)
def test_so_it_is_on_public_traces(name, block_size, ratio):
    share, size = coverage(public(name, block_size), block_size, ratio)
    assert share >= LEAST_COVERAGE
    assert 0.7 <= size <= 1.3


def test_a_larger_sample_errs_less_and_totals_are_exact():
    made_batches = made()
    exact = exact_curve(made_batches, 32)
    errors = []
    for ratio in (0.02, 0.1, 0.5):
        sampled = sampled_curve(made_batches, 32, ratio, 1)
        assert sampled.totals == exact.totals
        assert sampled.num_sampled == pytest.approx(ratio * exact.num_distinct, rel=0.2)
        errors.append(sampled.hits([1000]).error[0])
    assert errors[0] > errors[1] > errors[2] > 0


def test_estimates_stay_in_their_range():
    sampled = sampled_curve(made(), 32, 0.05, 2)
    values = sampled.hits([sampled.smallest_capacity, 10**9]).value
    assert (values >= 0).all()
    assert (values <= sampled.totals.num_lookups).all()


def test_nothing_is_said_about_caches_that_the_sample_is_too_coarse_for():
    sampled = sampled_curve(made(), 32, 0.05, 2)
    assert sampled.smallest_capacity == 320
    with pytest.raises(ValueError, match="319 blocks, at least 320"):
        sampled.hits([1000, 319])


def test_equal_seeds_give_equal_samples_and_batches_do_not_matter():
    rows = [(r["hash_ids"], len(r["hash_ids"]), r["input_length"]) for r in made_rows(3, 300)]
    values = []
    for size in (10, 10**6):
        columns = [Batch(*c) for c in batches(rows, size)]
        values.append(sampled_curve(columns, 32, 0.3, 5).hits([60, 100]).value.tolist())
    assert values[0] == values[1]
    other = sampled_curve(columns, 32, 0.3, 6).hits([60, 100]).value.tolist()
    assert other != values[0]


def test_hashes_are_even_and_independent_of_order():
    numbers = hashed(np.arange(100_000), 0)
    counts, _ = np.histogram(numbers, bins=NUM_PARTS, range=(0, 1))
    assert counts.min() > 0.95 * 100_000 / NUM_PARTS
    assert hashed(np.array([77]), 0) == numbers[77]
    assert CONFIDENCE == 0.95


@pytest.mark.parametrize("ratio", [0.0, 1.0, -1.0])
def test_a_ratio_must_be_a_part(ratio):
    with pytest.raises(ValueError, match="above 0 and below 1"):
        SampledCurve(16, ratio)
