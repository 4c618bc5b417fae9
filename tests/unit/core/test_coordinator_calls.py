"""Context parallelism, lookups by group, drained statistics. Source: spec/manager.md 4, 5."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.core.prefix_cache_stats import CachingMetrics, PrefixCacheStats
from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheConfig
from sim.request import Request
from tests.helpers import (
    Prefixes,
    admit,
    allocate,
    full,
    make_kv_cache_config,
    mamba,
    put_in_cache,
    sliding,
)
from tests.unit.core.kinds import SIM, native


def test_ranks_that_share_a_sequence_make_blocks_larger():
    """Spec block 4, two ranks: effective 8; 20 tokens are 3 blocks and a replay hits 16."""
    for size in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        config = make_kv_cache_config([full(4)], num_blocks=20)
        manager = SIM.KVCacheManager(config, 8192, 8, 8, **{size: 2})
        prefixes = Prefixes(8)
        request = prefixes.request("a", range(20))
        assert admit(manager, request) == (0, ([1, 2, 3],))
        assert admit(manager, prefixes.request("b", range(20))) == (16, ([4],))
        # The reference cuts at the spec's own size here: cdiv(9, 4) = 3.
        assert manager.get_block_ids_for_computed_tokens("a", 9) == ([1, 2, 3],)
        check_integrity(manager)


def test_several_groups_share_no_sequence():
    with pytest.raises(ConfigError, match="context_parallel_size: 2: 1 with several"):
        native([full(4), mamba(4)], num_blocks=20, decode_context_parallel_size=2)


def test_each_group_by_itself():
    """Full has 5 blocks, the states end at 8 and 16; together they agree on 16."""
    manager = native([full(4), mamba(4), sliding(4, 8)], num_blocks=40)
    put_in_cache(manager, 0, range(5))
    put_in_cache(manager, 1, [1, 3])
    put_in_cache(manager, 2, [0, 1])
    rows, lengths = manager.coordinator.find_longest_cache_hit_per_group(list(range(10)), 39)
    assert lengths == [20, 16, 8]
    assert [len(row) for row in rows] == [5, 4, 2]
    assert manager.coordinator.find_longest_cache_hit(list(range(10)), 39)[1] == 8
    assert manager.coordinator.num_uncached_common_prefix_tokens == 12


def test_the_per_group_lookup_leaves_the_hint_alone():
    manager = native([full(4), mamba(4)], num_blocks=40)
    put_in_cache(manager, 0, range(5))
    manager.coordinator.find_longest_cache_hit_per_group(list(range(10)), 39)
    assert manager.coordinator.num_uncached_common_prefix_tokens == 0


def test_no_groups_at_all():
    manager = SIM.KVCacheManager(KVCacheConfig(1, (), ()), 8192, 16, 16, enable_caching=False)
    request = Request("a", 5, 5)
    assert manager.get_computed_blocks(request) == ((), 0)
    assert allocate(manager, request, 5, full_sequence_must_fit=True) == ()
    assert manager.coordinator.most_blocks_held(0, 9) == 0
    manager.free(request)
    check_integrity(manager)
    with pytest.raises(ConfigError):
        SIM.KVCacheManager(KVCacheConfig(1, (), ()), 8192, 16, 16)


def test_statistics_are_drained_and_know_of_a_reset():
    manager = native([full(4)], num_blocks=20)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(18))
    admit(manager, request)
    manager.get_computed_blocks(prefixes.request("b", range(18)))
    drained = manager.make_prefix_cache_stats()
    assert drained == PrefixCacheStats(requests=2, queries=36, hits=16)
    assert manager.reset_prefix_cache() is False
    assert manager.make_prefix_cache_stats() == PrefixCacheStats()
    manager.free(request)
    assert manager.reset_prefix_cache() is True
    assert manager.make_prefix_cache_stats() == PrefixCacheStats(reset=True)


def test_the_hit_rate_is_that_of_recent_requests():
    metrics = CachingMetrics(max_recent_requests=4)
    assert metrics.empty
    assert metrics.hit_rate == 0
    metrics.observe(PrefixCacheStats(preempted_requests=3, preempted_queries=9))
    assert metrics.empty
    metrics.observe(PrefixCacheStats(requests=3, queries=30, hits=0))
    metrics.observe(PrefixCacheStats(requests=1, queries=10, hits=10))
    assert metrics.hit_rate == 0.25
    # Five requests: the three oldest go.
    metrics.observe(PrefixCacheStats(requests=1, queries=10, hits=0))
    assert metrics.hit_rate == 0.5
    # One entry always stays, however large.
    metrics.observe(PrefixCacheStats(requests=9, queries=8, hits=2))
    assert metrics.hit_rate == 0.25
    metrics.observe(PrefixCacheStats(reset=True))
    assert metrics.empty
    assert metrics.hit_rate == 0


def test_coarse_identities_are_cut_once_for_a_request():
    """Every lookup of a waiting request reads the identities that the request keeps."""
    manager = native([full(4), sliding(8, 16)], num_blocks=40)
    request = Prefixes(4).request("a", range(40))
    manager.get_computed_blocks(request)
    kept = request.prefix_ids_by(2)
    manager.get_computed_blocks(request)
    assert request.prefix_ids_by(2) is kept
