"""Tokens that were computed elsewhere. Source: spec/manager.md 3.1, 4.1, 5.3, D.4, D.5."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.errors import InvariantError
from tests.helpers import Prefixes, admit, allocate, full, mamba, put_in_cache, sliding, tables
from tests.unit.core.kinds import native


def world(num_blocks=20):
    return native([full(4), sliding(4, 8)], num_blocks=num_blocks)


def test_external_and_new_tokens():
    manager = world()
    request = Prefixes(4).request("a", range(40))
    new = manager.allocate_slots(request, 4, num_external_computed_tokens=36)
    assert new == ([12], [13])
    assert tables(manager, request) == [[*range(1, 10), 12], [0] * 7 + [10, 11, 13]]
    check_integrity(manager)


def test_an_asynchronous_load_is_registered_later():
    manager = world()
    request = Prefixes(4).request("a", range(40))
    new = manager.allocate_slots(
        request, 0, num_external_computed_tokens=39, delay_cache_blocks=True
    )
    assert new == ([], [])
    assert tables(manager, request) == [list(range(1, 11)), [0] * 8 + [11, 12]]
    assert manager.coordinator.single_type_managers[0].num_cached_block["a"] == 0
    manager.cache_blocks(request, 39)
    assert manager.coordinator.single_type_managers[0].num_cached_block["a"] == 9
    pool = manager.block_pool
    assert [pool.get_cached_block(i, [0]) for i in request.prefix_ids[:9]] == [
        [block] for block in range(1, 10)
    ]
    # Tokens 32 to 35 are all that the window has; a hit needs eight.
    assert pool.get_cached_block(request.prefix_ids[8], [1]) == [11]
    assert manager.get_computed_blocks(request)[1] == 0
    check_integrity(manager)


def test_no_group_fills_what_another_has_hit():
    """Two passes: the sliding group's hit lies at the head of the queue when full takes blocks."""
    manager = world(num_blocks=9)
    names = list(range(10))
    hit_full = put_in_cache(manager, 0, names[:2])
    hit_window = put_in_cache(manager, 1, names[:2])
    for blocks in (hit_window, hit_full):
        manager.block_pool.free_blocks(list(blocks.values()))
    rows, length = manager.coordinator.find_longest_cache_hit(names, 39)
    assert length == 8
    request = Prefixes(4).request("a", range(16))
    manager.allocate_slots(request, 2, length, rows, num_external_computed_tokens=2)
    assert tables(manager, request)[0][:2] == list(hit_full.values())
    assert not set(tables(manager, request)[0]) & set(hit_window.values())
    check_integrity(manager)


def test_reserved_blocks_are_left_alone_but_not_by_the_gate():
    manager = world(num_blocks=9)
    request = Prefixes(4).request("a", range(8))
    settings = {"full_sequence_must_fit": True}
    # Two blocks per group of the eight.
    assert manager.allocate_slots(request, 8, reserved_blocks=5, **settings) is None
    assert manager.allocate_slots(request, 8, reserved_blocks=4, **settings) is not None


def test_delayed_registration_catches_up_with_the_next_allocation():
    manager = native([full(4)], num_blocks=20)
    request = Prefixes(4).request("a", range(12))
    allocate(manager, request, 9, delay_cache_blocks=True)
    assert manager.coordinator.single_type_managers[0].num_cached_block == {}
    # The step is not quiet although it takes no block.
    allocate(manager, request, 1)
    assert manager.coordinator.single_type_managers[0].num_cached_block == {"a": 2}


def test_a_state_from_elsewhere_is_one_block_that_the_prediction_lacks():
    """D.5: the reference fails in the middle of the allocation, and so do we."""
    manager = native([mamba(4, "align")], num_blocks=3)
    request = Prefixes(4).request("a", range(12))
    with pytest.raises(ValueError, match="1"):
        squeeze = manager.block_pool.get_new_blocks(1, 0)
        assert squeeze == [1]
        manager.allocate_slots(request, 4, num_external_computed_tokens=8)


def test_hits_come_before_anything_else():
    manager = world()
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(16))
    admit(manager, first)
    rows, length = manager.get_computed_blocks(prefixes.request("b", range(16)))
    with pytest.raises(InvariantError, match="has blocks already"):
        manager.coordinator.allocate_new_computed_blocks("a", rows, length)


def test_popped_blocks_stay_held_until_they_are_freed():
    manager = world()
    request = Prefixes(4).request("a", range(20))
    allocate(manager, request, 20)
    whole = [block for row in tables(manager, request) for block in row]
    assert manager.pop_blocks_for_free(request) == whole
    assert manager.pop_blocks_for_free(request) == []
    assert manager.block_pool.get_num_free_blocks() == 19 - 10
    manager.block_pool.free_blocks(whole[::-1])
    assert manager.usage == 0
    check_integrity(manager)
