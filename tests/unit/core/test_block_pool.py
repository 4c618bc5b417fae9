"""Pool examples. Source: spec/manager.md 1.4, appendix C 1 and 11; spec/real_cases.md B12."""

from __future__ import annotations

import pytest

from tests.helpers import EventLog, Prefixes, admit, allocate, free_list, full, make_manager
from tests.helpers import tables as tables_of


def pool_of(implementation, num_blocks, **settings):
    manager = make_manager(implementation, [full(16)], num_blocks=num_blocks, **settings)
    return manager.block_pool


def test_block_zero_is_null_and_ids_come_out_ascending(implementation):
    pool = pool_of(implementation, 6)
    assert pool.free_block_queue.get_all_free_blocks() == [1, 2, 3, 4, 5]
    assert pool.get_new_blocks(3, 0) == [1, 2, 3]
    assert pool.get_num_free_blocks() == 2
    assert pool.get_usage() == pytest.approx(3 / 5)  # 1 - 2/(6 - 1)


def test_usage_of_a_pool_of_the_null_block_alone_is_zero(implementation):
    assert pool_of(implementation, 1).get_usage() == 0


def test_too_many_or_negative_counts_change_nothing(implementation):
    pool = pool_of(implementation, 6)
    for count in (6, -1):
        with pytest.raises(ValueError):
            pool.get_new_blocks(count, 0)
    assert pool.free_block_queue.get_all_free_blocks() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("block_id", [-1, 6])
def test_eviction_of_an_impossible_id_is_rejected(implementation, block_id):
    with pytest.raises(ValueError):
        pool_of(implementation, 6).evict_blocks([block_id])


def test_free_order_of_two_requests_that_share_a_prefix(implementation):
    manager = make_manager(implementation, [full(16)], num_blocks=11)
    prefixes = Prefixes(16)
    common = list(range(48))
    first = prefixes.request("r0", common + ["a"] * 7)
    second = prefixes.request("r1", common + ["b"] * 5)
    assert admit(manager, first) == (0, ([1, 2, 3, 4],))
    assert admit(manager, second) == (48, ([5],))
    assert tables_of(manager, second) == [[1, 2, 3, 5]]
    manager.free(first)
    assert free_list(manager) == [4, 6, 7, 8, 9, 10]
    manager.free(second)
    assert free_list(manager) == [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]


def test_blocks_without_content_are_reused_first(implementation):
    """B12: free [h1, p1, h2] and the next allocations take p1, then h1, h2."""
    pool = pool_of(implementation, 4)
    h1, p1, h2 = pool.get_new_blocks(3, 0)
    pool.register(h1, 0, 100)
    pool.register(h2, 0, 101)
    pool.free_blocks([h1, p1, h2])
    assert pool.num_cached_free == 2
    assert pool.get_new_blocks(3, 0) == [p1, h1, h2]


def test_freed_hashless_blocks_go_ahead_of_unused_ones_in_the_callers_order(implementation):
    pool = pool_of(implementation, 7)
    pool.get_new_blocks(3, 0)
    pool.free_blocks([2, 1])
    pool.free_blocks([3])
    assert pool.free_block_queue.get_all_free_blocks() == [3, 2, 1, 4, 5, 6]


def test_a_freed_cached_block_can_be_hit_until_it_is_handed_out(implementation):
    pool = pool_of(implementation, 4)
    (block_id,) = pool.get_new_blocks(1, 0)
    pool.register(block_id, 0, 7)
    pool.free_blocks([block_id])
    assert pool.get_cached_block(7, [0]) == [block_id]
    assert pool.get_new_blocks(2, 0) == [2, 3]
    assert pool.get_cached_block(7, [0]) == [block_id]
    assert pool.get_new_blocks(1, 0) == [block_id]
    assert pool.get_cached_block(7, [0]) is None


def test_a_touched_block_leaves_the_queue_and_keeps_its_content(implementation):
    pool = pool_of(implementation, 5)
    blocks = pool.get_new_blocks(3, 0)
    for name, block_id in enumerate(blocks):
        pool.register(block_id, 0, name)
    pool.free_blocks(blocks)
    pool.touch([2], 0)
    pool.touch([2], 0)
    assert pool.ref_cnt[2] == 2
    assert pool.free_block_queue.get_all_free_blocks() == [4, 1, 3]
    pool.free_blocks([2])
    assert pool.free_block_queue.get_all_free_blocks() == [4, 1, 3]
    pool.free_blocks([2])
    assert pool.free_block_queue.get_all_free_blocks() == [4, 1, 3, 2]


def test_the_earliest_surviving_duplicate_is_found(implementation):
    pool = pool_of(implementation, 5)
    for block_id in pool.get_new_blocks(3, 0):
        pool.register(block_id, 0, 7)
    assert pool.get_cached_block(7, [0]) == [1]
    pool.evict_blocks([1])
    assert pool.get_cached_block(7, [0]) == [2]
    pool.evict_blocks([3])
    assert pool.get_cached_block(7, [0]) == [2]
    pool.evict_blocks([2])
    assert pool.get_cached_block(7, [0]) is None


def test_a_lookup_over_groups_is_all_or_nothing(implementation):
    manager = make_manager(implementation, [full(16), full(32)], num_blocks=5)
    pool = manager.block_pool
    (first,) = pool.get_new_blocks(1, 0)
    (second,) = pool.get_new_blocks(1, 1)
    pool.register(first, 0, 7)
    assert pool.get_cached_block(7, [0, 1]) is None
    pool.register(second, 1, 7)
    assert pool.get_cached_block(7, [0, 1]) == [first, second]
    assert pool.get_cached_block(7, [1, 0]) == [second, first]
    assert list(pool.held_by_group) == [1, 1]


def test_eviction_by_id_moves_no_block(implementation):
    pool = pool_of(implementation, 6)
    blocks = pool.get_new_blocks(3, 0)
    for name, block_id in enumerate(blocks):
        pool.register(block_id, 0, name)
    pool.free_blocks(blocks)
    pool.evict_blocks([2])
    assert pool.free_block_queue.get_all_free_blocks() == [4, 5, 1, 2, 3]
    assert list(pool.prefix_id)[1:4] == [0, -1, 2]
    assert pool.num_cached_free == 2


def test_a_used_block_evicted_by_id_is_freed_as_hashless(implementation):
    pool = pool_of(implementation, 4)
    (block_id,) = pool.get_new_blocks(1, 0)
    pool.register(block_id, 0, 7)
    pool.evict_blocks([block_id])
    pool.free_blocks([block_id])
    assert pool.free_block_queue.get_all_free_blocks() == [1, 2, 3]


def test_reset_is_refused_while_a_block_is_used_and_keeps_the_queue(implementation):
    log = EventLog()
    manager = make_manager(implementation, [full(4)], num_blocks=6, observer=log)
    request = Prefixes(4).request("r", range(9))
    admit(manager, request)
    assert manager.reset_prefix_cache() is False
    manager.free(request)
    before = free_list(manager)
    assert before == [3, 4, 5, 2, 1]
    log.clear()
    assert manager.reset_prefix_cache() is True
    assert log.events["evicted"] == ["everything"]
    assert free_list(manager) == before
    assert manager.block_pool.num_cached_free == 0
    assert admit(manager, Prefixes(4).request("s", range(9))) == (0, ([3, 4, 5],))


def test_with_caching_off_every_freed_block_goes_to_the_front(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=6, enable_caching=False)
    request = Prefixes(4).request("r", range(8))
    assert allocate(manager, request, 8) == ([1, 2],)
    manager.free(request)
    assert free_list(manager) == [2, 1, 3, 4, 5]
    assert manager.get_computed_blocks(request) == (([],), 0)
    assert manager.prefix_cache_stats.requests == 0


def test_events_of_one_life(implementation):
    """Allocation, registration, release and eviction are reported in the order of the pool."""
    log = EventLog()
    manager = make_manager(implementation, [full(4)], num_blocks=4, observer=log)
    prefixes = Prefixes(4)
    first = prefixes.request("r", range(9))
    names = first.prefix_ids[:2]
    admit(manager, first)
    assert log.events["allocated"] == [1, 2, 3]
    assert log.events["registered"] == [(0, "r", 0, 2, -1, [(1, names[0]), (2, names[1])])]
    manager.free(first)
    assert log.events["freed"] == [3, 2, 1]
    log.clear()
    admit(manager, prefixes.request("s", [*range(4), *"abcd"]))
    assert log.events["touched"] == [1]
    assert log.events["allocated"] == [3]
    assert log.events["evicted"] == []
    admit(manager, prefixes.request("t", "uvw"))
    assert log.events["evicted"] == [(2, 0, names[1])]
