import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics.metric import mean, nearest_rank, weighted_mean
from sim.metrics.sampling import ThinnedSamples


def test_nothing_has_no_mean_and_no_percentile():
    assert mean([]) is None
    assert nearest_rank([], 50) is None
    assert weighted_mean([], []) is None


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(1, 3), (10, 3), (11, 5), (50, 7), (90, 20), (91, 100), (99, 100), (100, 100)],
)
def test_nearest_rank_of_ten_values(percent, expected):
    values = [100, 20, 15, 13, 9, 7, 7, 6, 5, 3]  # unordered on purpose; rank = ceil(n p / 100)
    assert nearest_rank(values, percent) == expected


@given(st.lists(st.integers(-100, 100), min_size=1), st.integers(1, 100))
def test_nearest_rank_is_the_smallest_value_that_covers_the_share(values, percent):
    covering = [v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values)]
    assert nearest_rank(values, percent) == min(covering)


def test_weighted_mean_counts_each_value_for_its_time():
    # 4 for 10 and 0 for 30: 40 / 40.
    assert weighted_mean([4, 0], [10, 30]) == 1.0


def test_weighted_mean_without_any_time_is_the_plain_mean():
    assert weighted_mean([4, 6], [0, 0]) == 5


def test_weighted_mean_is_exact_for_large_integers():
    big = 2**60 + 1
    assert weighted_mean([big, big], [2**40, 2**41]) == float(big)


@pytest.mark.parametrize("limit", [2, 3, 5, 8])
def test_samples_stay_evenly_spaced_from_the_first_step(limit):
    samples = ThinnedSamples(limit)
    for step in range(1000):
        if samples.is_due(step):
            samples.rows.append(step)
        assert samples.rows == list(range(0, step + 1, samples.stride))
        assert len(samples.rows) <= limit
    assert len(samples.rows) >= limit // 2


def test_no_sample_is_dropped_before_the_table_is_full():
    samples = ThinnedSamples(8)
    for step in range(8):
        assert samples.is_due(step)
        samples.rows.append(step)
    assert samples.rows == list(range(8))


def test_a_limit_below_two_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        ThinnedSamples(1)
