"""KVCacheManager. Source: spec/manager.md 5; more in tests/unit/core/test_kv_cache_manager.py."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.core.prefix_cache_stats import CachingMetrics, PrefixCacheStats
from tests.helpers import Prefixes, admit, allocate, free_list, full, mamba, sliding
from tests.helpers import tables as tables_of
from tests.spec.worlds import group, manager_of, num_registered


# -- 5.2 ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("num_tokens", "hit"), [(16, 12), (17, 16)])
def test_a_fully_cached_prompt_computes_its_last_token(num_tokens, hit):
    manager = manager_of(full(4))
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(num_tokens)))
    assert manager.get_computed_blocks(prefixes.request("b", range(num_tokens)))[1] == hit


def test_a_lookup_changes_no_block():
    manager = manager_of(full(4), num_blocks=12)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(20))
    admit(manager, first)
    manager.free(first)
    before = free_list(manager), list(manager.block_pool.ref_cnt)
    for _ in range(3):
        assert manager.get_computed_blocks(prefixes.request("b", range(20)))[1] == 16
    assert (free_list(manager), list(manager.block_pool.ref_cnt)) == before


# -- 5.3 external tokens ------------------------------------------------------------------------
def test_external_tokens_and_new_ones_in_one_call():
    """36 external tokens and 4 new ones, full + window of 8, blocks of 4."""
    manager = manager_of(full(4), sliding(4, 8))
    request = Prefixes(4).request("a", range(40))
    new = manager.allocate_slots(request, 4, num_external_computed_tokens=36)
    assert [list(row) for row in new] == [[12], [13]]
    assert tables_of(manager, request) == [[*range(1, 10), 12], [0] * 7 + [10, 11, 13]]
    # Registered at once: ten blocks of full attention, three of the window.
    assert [num_registered(manager, g) for g in (0, 1)] == [10, 3]
    check_integrity(manager)


def test_an_asynchronous_load_is_registered_when_it_is_there():
    """39 external tokens, nothing new, registration delayed; then nine blocks' worth of it."""
    manager = manager_of(full(4), sliding(4, 8))
    request = Prefixes(4).request("a", range(40))
    new = manager.allocate_slots(
        request, 0, num_external_computed_tokens=39, delay_cache_blocks=True
    )
    assert [list(row) for row in new] == [[], []]
    assert tables_of(manager, request) == [[*range(1, 11)], [0] * 8 + [11, 12]]
    assert [num_registered(manager, g) for g in (0, 1)] == [0, 0]
    manager.cache_blocks(request, 39)
    # 39 // 4 = 9 blocks are dealt with in each group; in the window's, eight of them are null.
    assert [group(manager, g).num_cached_block["a"] for g in (0, 1)] == [9, 9]
    assert [num_registered(manager, g) for g in (0, 1)] == [9, 1]


def test_external_tokens_make_an_align_group_predict_one_block_too_few():
    """D.5: 16 external and 4 new tokens take 7 blocks, 6 are expected; vLLM raises as well.

    Six usable blocks pass the check; five full ones and the state of the load are taken already
    when the last one is missing.
    """
    for num_usable in (7, 6):
        manager = manager_of(full(4), mamba(4), num_blocks=num_usable + 1)
        request = Prefixes(4).request("a", range(40))
        if num_usable == 7:
            new = manager.allocate_slots(request, 4, num_external_computed_tokens=16)
            assert [list(row) for row in new] == [[6], [7]]
            assert tables_of(manager, request) == [[1, 2, 3, 4, 6], [0, 0, 0, 5, 7]]
            continue
        with pytest.raises(ValueError):
            manager.allocate_slots(request, 4, num_external_computed_tokens=16)
        assert tables_of(manager, request) == [[1, 2, 3, 4, 6], [0, 0, 0, 5]]


def test_neither_new_nor_external_tokens_is_an_error():
    manager = manager_of(full(4))
    request = Prefixes(4).request("a", range(9))
    with pytest.raises(ValueError):
        manager.allocate_slots(request, 0)


def test_reserved_blocks_are_left_alone():
    """Step 7: need + watermark > free - reserved is a refusal."""
    for reserved, admitted in ((4, True), (5, False)):
        manager = manager_of(full(4), num_blocks=8)
        request = Prefixes(4).request("a", range(12))
        new = manager.allocate_slots(request, 12, reserved_blocks=reserved)
        assert (new is not None) is admitted


def test_delayed_registration_registers_nothing():
    manager = manager_of(full(4))
    request = Prefixes(4).request("a", range(12))
    allocate(manager, request, 12, delay_cache_blocks=True)
    assert num_registered(manager, 0) == 0
    manager.cache_blocks(request, 8)
    assert num_registered(manager, 0) == 2


def test_drafts_beyond_the_known_tokens_are_never_registered():
    """Step 11: min(total + new, num_tokens); 11 tokens known, 4 scheduled at 10."""
    manager = manager_of(full(4))
    request = Prefixes(4).request("a", range(10))
    allocate(manager, request, 10)
    request.num_tokens = 11
    allocate(manager, request, 6)
    assert num_registered(manager, 0) == 2
    assert tables_of(manager, request) == [[1, 2, 3, 4]]


# -- 5.4 ----------------------------------------------------------------------------------------
def test_block_ids_up_to_the_computed_tokens():
    """Attention groups are cut to cdiv(n, block size), recurrent ones stay whole."""
    manager = manager_of(full(4), mamba(4))
    request = Prefixes(4).request("a", range(40))
    allocate(manager, request, 16)
    cut = manager.get_block_ids_for_computed_tokens("a", 6)
    assert [list(row) for row in cut] == [[1, 2], [0, 0, 0, 5]]


def test_popped_blocks_are_the_callers_to_free():
    manager = manager_of(full(4), num_blocks=8)
    request = Prefixes(4).request("a", range(9))
    allocate(manager, request, 9)
    blocks = list(manager.pop_blocks_for_free(request))
    assert blocks == [1, 2, 3]
    assert tables_of(manager, request) == [[]]
    assert manager.block_pool.get_num_free_blocks() == 4
    manager.block_pool.free_blocks(blocks[::-1])
    assert free_list(manager) == [3, 4, 5, 6, 7, 2, 1]


def test_eviction_by_id_ends_hits_from_there_on():
    """Invariant 22: without block i, at most i blocks are hit."""
    manager = manager_of(full(4))
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(20)))
    manager.evict_blocks({3})
    assert manager.get_computed_blocks(prefixes.request("b", range(20)))[1] == 8


# -- 5.5 ----------------------------------------------------------------------------------------
def test_statistics_are_drained():
    """make_prefix_cache_stats: the object so far, and a fresh one from here on."""
    manager = manager_of(full(4))
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(10)))
    manager.get_computed_blocks(prefixes.request("b", range(10)))
    stats = manager.make_prefix_cache_stats()
    assert (stats.requests, stats.queries, stats.hits) == (2, 20, 8)
    again = manager.make_prefix_cache_stats()
    assert (again.requests, again.queries, again.hits) == (0, 0, 0)


def test_an_attempt_that_is_refused_is_counted_again():
    """Q5: per attempt, not per admission."""
    manager = manager_of(full(4), num_blocks=4)
    request = Prefixes(4).request("a", range(20))
    for attempt in (1, 2, 3):
        assert admit(manager, request, full_sequence_must_fit=True) == (0, None)
        assert manager.prefix_cache_stats.queries == 20 * attempt


def test_the_hit_rate_of_recent_requests():
    """CachingMetrics: the oldest entries go while there is more than one and too many requests."""
    metrics = CachingMetrics(max_recent_requests=5)
    assert (metrics.empty, metrics.hit_rate) == (True, 0.0)
    metrics.observe(PrefixCacheStats(requests=0, queries=9, hits=9))
    assert metrics.empty
    metrics.observe(PrefixCacheStats(requests=3, queries=100, hits=0))
    metrics.observe(PrefixCacheStats(requests=2, queries=100, hits=50))
    assert metrics.hit_rate == 0.25
    metrics.observe(PrefixCacheStats(requests=1, queries=100, hits=100))  # the first three leave
    assert metrics.hit_rate == 0.75
    metrics.observe(PrefixCacheStats(requests=9, queries=10, hits=1))  # alone, though too many
    assert metrics.hit_rate == 0.1
    metrics.observe(PrefixCacheStats(reset=True))
    assert (metrics.empty, metrics.hit_rate) == (True, 0.0)


def test_a_reset_is_told_with_the_statistics():
    """5.4: on success prefix_cache_stats.reset is set, for the next drain only."""
    manager = manager_of(full(4))
    request = Prefixes(4).request("a", range(10))
    admit(manager, request)
    assert manager.reset_prefix_cache() is False
    manager.free(request)
    assert manager.reset_prefix_cache() is True
    assert manager.make_prefix_cache_stats().reset is True
    assert manager.make_prefix_cache_stats().reset is False
