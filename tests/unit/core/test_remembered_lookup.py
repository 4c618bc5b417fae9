"""A blocked request's prompt is not looked up again while nothing it depends on has changed."""

from __future__ import annotations

import pytest

from sim.core.kv_cache_manager import KVCacheManager
from sim.request import Request
from tests.helpers import full, make_kv_cache_config, sliding


class CountingIndex(dict):
    """A cache index that counts look-ups."""

    count = 0

    def get(self, key, default=None):
        CountingIndex.count += 1
        return super().get(key, default)

    def __contains__(self, key):
        CountingIndex.count += 1
        return super().__contains__(key)


@pytest.fixture
def manager():
    config = make_kv_cache_config([full(4), sliding(4, 8)], num_blocks=60)
    manager = KVCacheManager(config, 1000, 4, 4, max_num_batched_tokens=64)
    manager.block_pool.cached_blocks[:] = [CountingIndex(), CountingIndex()]
    return manager


def run(manager, name, prefix_ids, num_tokens):
    request = Request(name, num_tokens, 8, prefix_ids=prefix_ids)
    hits, length = manager.get_computed_blocks(request)
    assert manager.allocate_slots(request, num_tokens - length, length, hits) is not None
    return request


def looked_up(manager, request):
    before = CountingIndex.count
    answer = manager.get_computed_blocks(request)
    return answer, CountingIndex.count - before


SHARED = list(range(10))


def test_third_attempt_asks_the_index_nothing_and_counts_all_the_same(manager):
    manager.free(run(manager, "a", SHARED, 41))
    waiting = Request("b", 100, 8, prefix_ids=[*SHARED, *range(100, 120)])
    first, asked = looked_up(manager, waiting)
    assert asked > 0
    second, _ = looked_up(manager, waiting)
    third, asked = looked_up(manager, waiting)
    assert first == second == third
    assert first[1] == 40
    assert asked == 0
    stats = manager.prefix_cache_stats
    # Request a looked up once (41 tokens), b three times.
    assert (stats.requests, stats.queries, stats.hits) == (4, 41 + 3 * 100, 3 * 40)


def test_unrelated_changes_do_not_ask_again(manager):
    manager.free(run(manager, "a", SHARED, 41))
    waiting = Request("b", 100, 8, prefix_ids=[*SHARED, *range(100, 120)])
    for _ in range(2):
        looked_up(manager, waiting)
    run(manager, "other", list(range(500, 505)), 20)
    # The lookup of "other" came in between, so the first attempt after it looks up once more.
    looked_up(manager, waiting)
    looked_up(manager, waiting)
    manager.allocate_slots(Request("tail", 3, 1), 3)
    assert looked_up(manager, waiting)[1] == 0


def test_eviction_of_a_block_it_would_hit_is_noticed(manager):
    manager.free(run(manager, "a", SHARED, 41))
    waiting = Request("b", 100, 8, prefix_ids=[*SHARED, *range(100, 120)])
    for _ in range(3):
        looked_up(manager, waiting)
    block_id = manager.block_pool.cached_blocks[0][SHARED[4]]
    manager.evict_blocks([block_id])
    (_, length), asked = looked_up(manager, waiting)
    # Four full-attention blocks are left; the sliding group kept the last window only (8..10).
    assert asked > 0
    assert length < 40


def test_registration_of_a_block_it_lacks_is_noticed(manager):
    manager.free(run(manager, "a", SHARED[:5], 21))
    waiting = Request("b", 100, 8, prefix_ids=[*SHARED, *range(100, 120)])
    for _ in range(3):
        (_, length), asked = looked_up(manager, waiting)
    assert (length, asked) == (20, 0)
    longer = Request("c", 41, 8, prefix_ids=SHARED)
    assert manager.allocate_slots(longer, 41) is not None
    (_, length), asked = looked_up(manager, waiting)
    assert (length, asked > 0) == (40, True)


def test_eviction_by_allocation_is_noticed(manager):
    manager.free(run(manager, "a", SHARED, 41))
    waiting = Request("b", 100, 8, prefix_ids=[*SHARED, *range(100, 120)])
    for _ in range(3):
        looked_up(manager, waiting)
    manager.block_pool.get_new_blocks(manager.block_pool.get_num_free_blocks(), 0)
    assert looked_up(manager, waiting)[0][1] == 0
