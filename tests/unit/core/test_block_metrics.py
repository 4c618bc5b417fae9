"""Residency of blocks. Source: spec/manager.md 7.2, 7.3."""

from __future__ import annotations

import random

import pytest

from sim.core.block_metrics import BUCKETS_NS, BlockMetrics, Histogram, KVCacheEvictionEvent
from sim.core.block_pool import BlockPool

S = 10**9


def watched_pool(num_blocks=4, rate=1.0, **settings):
    metrics = BlockMetrics(rate, lambda: 0.5, **settings)
    return BlockPool(num_blocks, observer=metrics), metrics


def test_lifetime_idle_and_gaps_of_one_block():
    """Birth at 10; hits at 12, 15, 19; handed out again at 30: life 20, idle 11, gaps 3 and 4."""
    pool, metrics = watched_pool(2)
    metrics.at(10 * S)
    pool.get_new_blocks(1, 0)
    for second in (12, 15, 19):
        metrics.at(second * S)
        pool.touch([1], 0)
    pool.free_blocks([1])
    pool.free_blocks([1])
    pool.free_blocks([1])
    pool.free_blocks([1])
    metrics.at(30 * S)
    assert metrics.drain_events() == []
    pool.get_new_blocks(1, 0)
    assert metrics.drain_events() == [KVCacheEvictionEvent(20 * S, 11 * S, (3 * S, 4 * S))]


def test_only_the_last_four_hits_are_remembered():
    pool, metrics = watched_pool(2)
    pool.get_new_blocks(1, 0)
    for second in (1, 2, 4, 8, 16, 32):
        metrics.at(second * S)
        pool.touch([1], 0)
    pool.evict_blocks([1])
    assert metrics.drain_events() == [KVCacheEvictionEvent(32 * S, 0, (4 * S, 8 * S, 16 * S))]


def test_a_block_without_hits_idles_since_its_birth_and_one_hit_makes_no_gap():
    pool, metrics = watched_pool(3)
    pool.get_new_blocks(2, 0)
    metrics.at(5 * S)
    pool.touch([2], 0)
    metrics.at(7 * S)
    pool.evict_blocks([1, 2])
    assert metrics.drain_events() == [
        KVCacheEvictionEvent(7 * S, 7 * S, ()),
        KVCacheEvictionEvent(7 * S, 2 * S, ()),
    ]


def test_eviction_by_id_ends_a_residence_only_once():
    pool, metrics = watched_pool(2)
    pool.get_new_blocks(1, 0)
    pool.evict_blocks([1])
    pool.evict_blocks([1])
    assert len(metrics.drain_events()) == 1


def test_a_reset_forgets_residences_and_undrained_ends():
    pool, metrics = watched_pool(3)
    pool.get_new_blocks(2, 0)
    pool.evict_blocks([1])
    pool.free_blocks([2, 1])
    assert pool.reset_prefix_cache()
    assert metrics.drain_events() == []
    pool.get_new_blocks(2, 0)
    assert metrics.drain_events() == []


def test_without_caching_nothing_ever_ends():
    pool, metrics = watched_pool(2, enable_caching=False)
    for _ in range(3):
        pool.get_new_blocks(1, 0)
        pool.free_blocks([1])
    assert metrics.drain_events() == []
    assert metrics.num_sampled == 3


def test_each_allocation_draws_once_and_is_followed_below_the_rate():
    draws = iter([0.1, 0.3, 0.29999, 0.9])
    metrics = BlockMetrics(0.3, lambda: next(draws))
    pool = BlockPool(5, observer=metrics)
    pool.get_new_blocks(4, 0)
    pool.evict_blocks([1, 2, 3, 4])
    assert metrics.num_sampled == len(metrics.drain_events()) == 2
    with pytest.raises(StopIteration):
        next(draws)


@pytest.mark.parametrize("rate", [0, -0.1, 1.01])
def test_a_rate_outside_zero_to_one_is_refused(rate):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        BlockMetrics(rate, lambda: 0.5)


def test_buckets_are_those_of_vllm_and_bounds_belong_to_their_bucket():
    bounds = [b / S for b in BUCKETS_NS]
    assert bounds == [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300,
        600, 1200, 1800,
    ]  # fmt: skip
    histogram = Histogram()
    for duration in (0, 10**6, 10**6 + 1, 1800 * S, 1800 * S + 1):
        histogram.add(duration)
    summary = histogram.summary()
    # 0 and 1 ms; just above 1 ms; 1800 s; beyond.
    assert summary["buckets"]["0.001"] == 2
    assert summary["buckets"]["0.002"] == summary["buckets"]["1200"] == 3
    assert (summary["buckets"]["1800"], summary["buckets"]["+Inf"]) == (4, 5)
    assert summary["count"] == 5
    assert summary["sum"] == pytest.approx(3600.002000002)


def test_the_summary_has_vllms_names_and_counts_every_end_once():
    rng = random.Random(1)
    pool, metrics = watched_pool(9)
    num_taken = 0
    for step in range(200):
        metrics.at(step * S)
        count = rng.randrange(5)
        blocks = pool.get_new_blocks(count, 0)
        num_taken += count
        pool.free_blocks(blocks)
    summary = metrics.summary()
    # Freed without content they come out first again: only four blocks are ever used.
    ends = num_taken - 4
    assert summary["vllm:kv_block_lifetime_seconds"]["count"] == ends
    assert summary["vllm:kv_block_idle_before_evict_seconds"]["count"] == ends
    assert summary["vllm:kv_block_reuse_gap_seconds"]["count"] == 0
    assert summary["sampled_blocks"] == num_taken
