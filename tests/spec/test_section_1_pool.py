"""Blocks, queue, index, pool. Source: spec/manager.md 1 and appendix A (Q9)."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.errors import InvariantError
from tests.helpers import EventLog, Prefixes, allocate, decode, free_list, full, sliding
from tests.helpers import tables as tables_of
from tests.spec.worlds import manager_of


class StoreLog(EventLog):
    """Names the events that leave the pool, in order: stored, removed."""

    __slots__ = ("order",)

    def clear(self):
        super().clear()
        self.order = []

    def registered(self, *args, **named):
        super().registered(*args, **named)
        self.order.append("stored")

    def registered_partial(self, *args, **named):
        self.order.append("stored")

    def evicted(self, block_ids, group_ids, prefix_ids):
        super().evicted(block_ids, group_ids, prefix_ids)
        self.order += ["removed"] * len(prefix_ids)


# -- 1.1 the null block -------------------------------------------------------------------------
def test_null_entries_cost_nothing_and_free_nothing():
    """1.1: a table of five null entries is freed; here the null block's holders never drift."""
    manager = manager_of(sliding(16, 32))
    request = Prefixes(16).request("a", range(112))
    allocate(manager, request, 112)
    manager.remove_skipped_blocks("a", 112)
    assert tables_of(manager, request) == [[0, 0, 0, 0, 0, 6, 7]]
    before = manager.block_pool.ref_cnt[0]
    manager.free(request)
    assert manager.block_pool.ref_cnt[0] == before
    assert 0 not in free_list(manager)
    assert len(free_list(manager)) == 59
    check_integrity(manager)


# -- 1.2 the queue ------------------------------------------------------------------------------
def test_taking_nothing_touches_nothing():
    queue = manager_of(full(4), num_blocks=6).block_pool.free_block_queue
    assert list(queue.popleft_n(0)) == []
    assert queue.get_all_free_blocks() == [1, 2, 3, 4, 5]


def test_too_many_and_negative_counts_are_refused():
    """1.2 and Q9: the reference takes -1 and inflates its count; here it is an error."""
    queue = manager_of(full(4), num_blocks=6).block_pool.free_block_queue
    for count in (6, -1):
        with pytest.raises(ValueError):
            queue.popleft_n(count)
    assert (queue.num_free_blocks, len(queue.get_all_free_blocks())) == (5, 5)


def test_lists_keep_their_order_at_both_ends():
    queue = manager_of(full(4), num_blocks=8).block_pool.free_block_queue
    assert list(queue.popleft_n(4)) == [1, 2, 3, 4]
    queue.prepend_n([2, 1])
    queue.append_n([4, 3])
    assert queue.get_all_free_blocks() == [2, 1, 5, 6, 7, 4, 3]
    queue.remove([4])  # a hit pulls out cached blocks, which entered at the back
    assert queue.get_all_free_blocks() == [2, 1, 5, 6, 7, 3]
    assert queue.num_free_blocks == 6


# -- 1.4 partial entries ------------------------------------------------------------------------
def partial_world():
    """Return a pool with one held block of 16, hash blocks of 4, and the names of its prefixes."""
    log = StoreLog()
    manager = manager_of(full(16), sliding(4, 8), num_blocks=8, observer=log)
    pool = manager.block_pool
    (block_id,) = pool.get_new_blocks(1, 0)
    return pool, log, block_id, [10, 11, 12, 13]


def found(pool, names):
    return ["X" if pool.get_cached_block(name, [0]) else "." for name in names]


def test_life_of_a_partial_entry():
    """8 -> primary; 4 -> alias, two keys; 12 -> both removed; the full block -> 12 removed."""
    pool, log, block_id, names = partial_world()

    def cache_partial(num_tokens):
        return pool.cache_partial_block("a", block_id, num_tokens, names, 0, 16)

    assert cache_partial(8) == 11
    assert found(pool, names) == [".", "X", ".", "."]
    assert cache_partial(4) == 10
    assert found(pool, names) == ["X", "X", ".", "."]
    assert cache_partial(12) == 12
    assert found(pool, names) == [".", ".", "X", "."]
    pool.cache_full_blocks("a", [block_id], 0, 1, names[3::4], 0)
    assert found(pool, names) == [".", ".", ".", "X"]
    stored, removed = "stored", "removed"
    assert log.order == [stored, stored, removed, removed, stored, removed, stored]
    assert [prefix_id for _, _, prefix_id in log.events["evicted"]] == [11, 10, 12]


def test_a_partial_entry_that_is_there_already_is_not_told_again():
    pool, log, block_id, names = partial_world()
    for num_tokens in (8, 4, 8, 4):
        assert pool.cache_partial_block("a", block_id, num_tokens, names, 0, 16) is not None
    assert log.order == ["stored", "stored"]
    assert found(pool, names) == ["X", "X", ".", "."]


def test_the_null_block_has_no_partial_entry():
    pool, log, _, names = partial_world()
    assert pool.cache_partial_block("a", 0, 8, names, 0, 16) is None
    assert log.order == []


def test_all_keys_of_a_block_go_when_it_is_handed_out():
    pool, log, block_id, names = partial_world()
    for num_tokens in (8, 4):
        pool.cache_partial_block("a", block_id, num_tokens, names, 0, 16)
    pool.free_blocks([block_id])
    assert found(pool, names) == ["X", "X", ".", "."]
    assert pool.get_new_blocks(7, 0)[-1] == block_id
    assert found(pool, names) == ["."] * 4
    assert log.order == ["stored", "stored", "removed", "removed"]


@pytest.mark.parametrize("num_tokens", [0, 16, 6, 20])
def test_a_partial_entry_ends_on_a_hash_block_inside_the_block(num_tokens):
    pool, _, block_id, names = partial_world()
    with pytest.raises(InvariantError):
        pool.cache_partial_block("a", block_id, num_tokens, names, 0, 16)


# -- 1.4 full blocks, accounting ----------------------------------------------------------------
def test_nothing_is_done_for_an_empty_range():
    """1.4: num_cached >= num_full returns at once, without an event."""
    log = StoreLog()
    pool = manager_of(full(4), num_blocks=8, observer=log).block_pool
    blocks = pool.get_new_blocks(2, 0)
    pool.cache_full_blocks("a", blocks, 2, 2, [5, 6], 0)
    pool.cache_full_blocks("a", blocks, 2, 1, [5, 6], 0)
    assert log.order == []


def test_one_event_even_if_every_block_is_skipped():
    """Q6: a range that is masked out is told all the same, with no key."""
    log = StoreLog()
    pool = manager_of(full(4), num_blocks=8, observer=log).block_pool
    blocks = pool.get_new_blocks(2, 0)
    pool.cache_full_blocks("a", blocks, 0, 2, [5, 6], 0, [False, False])
    assert log.order == ["stored"]
    assert log.events["registered"] == [(0, "a", 0, 2, -1, [])]


def test_cached_free_blocks_count_as_free():
    manager = manager_of(full(4), num_blocks=11)
    request = Prefixes(4).request("a", range(17))
    allocate(manager, request, 17)
    assert manager.usage == pytest.approx(0.5)
    manager.free(request)
    assert manager.usage == 0
    assert manager.block_pool.num_cached_free == 4


def test_a_chunk_freed_by_the_window_is_the_last_to_be_reused():
    """1.4: what a window gives up is cached, so it goes to the tail, later ranges first."""
    manager = manager_of(sliding(4, 4), num_blocks=8)
    request = Prefixes(4).request("a", range(12))
    allocate(manager, request, 12)
    decode(manager, request)  # S(12) = 9: blocks 2 and 1 go; block 4 is taken
    assert free_list(manager) == [5, 6, 7, 2, 1]
