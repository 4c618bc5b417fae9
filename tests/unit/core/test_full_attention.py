"""Full attention. Source: spec/manager.md 3.1, 3.2, 4.3, 5.2, appendix C 12."""

from __future__ import annotations

import pytest

from tests.helpers import (
    Prefixes,
    admit,
    allocate,
    free_list,
    full,
    make_manager,
    put_in_cache,
    sliding,
)
from tests.helpers import tables as tables_of


@pytest.mark.parametrize(("num_tokens", "hit"), [(16, 12), (17, 16), (4, 0), (5, 4)])
def test_the_last_token_is_always_computed(implementation, num_tokens, hit):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(num_tokens))
    admit(manager, first)
    rows, found = manager.get_computed_blocks(prefixes.request("b", range(num_tokens)))
    assert found == hit
    assert list(rows[0]) == list(range(1, hit // 4 + 1))


def test_five_blocks_are_two_new_and_three_from_the_queue(implementation):
    """7 usable blocks, 3 cached free ones are hit by 20 tokens: 5 blocks are needed."""
    for num_taken, admitted in ((2, True), (3, False)):
        manager = make_manager(implementation, [full(4)], num_blocks=8)
        prefixes = Prefixes(4)
        first = prefixes.request("a", range(12))
        admit(manager, first)
        manager.free(first)
        taken = manager.block_pool.get_new_blocks(num_taken, 0)
        assert taken == [4, 5, 6][:num_taken]
        hit, new = admit(manager, prefixes.request("b", range(20)))
        assert hit == 12
        assert (new is not None) is admitted


def test_prediction_counts_new_and_evictable_blocks():
    from tests import reference

    manager = make_manager(reference, [full(4)], num_blocks=8)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(12))
    admit(manager, first)
    manager.free(first)
    second = prefixes.request("b", range(20))
    rows, hit = manager.get_computed_blocks(second)
    predict = manager.coordinator.get_num_blocks_to_allocate
    assert predict("b", 20, rows, hit, 20, False) == 5


def test_a_refusal_leaves_everything_as_it_was(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=8)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(12))
    admit(manager, first)
    manager.free(first)
    before = free_list(manager)
    second = prefixes.request("b", range(32))
    assert admit(manager, second) == (12, None)
    assert free_list(manager) == before
    assert tables_of(manager, second) == [[]]
    assert [manager.block_pool.ref_cnt[i] for i in range(1, 8)] == [0] * 7


def test_common_prefix_counts_requests_that_hold_blocks(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=30)
    prefixes = Prefixes(4)
    a, b = prefixes.request("a", range(16)), prefixes.request("b", [*range(12), *"wxyz"])
    admit(manager, a)
    admit(manager, b)
    assert manager.get_num_common_prefix_blocks("a") == [3]
    admit(manager, prefixes.request("c", "pqrs"))
    assert manager.get_num_common_prefix_blocks("a") == [0]


def test_hits_are_a_prefix_without_gaps(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    (group,) = manager.coordinator.single_type_managers
    blocks = put_in_cache(manager, 0, [0, 1, 3])
    lookup = group.find_longest_cache_hit
    assert list(lookup([0, 1, 2, 3], 16, [0], False, 4)[0]) == [blocks[0], blocks[1]]
    assert list(lookup([0, 1, 2, 3], 7, [0], False, 4)[0]) == [blocks[0]]
    assert list(lookup([0, 1, 2, 3], 16, [0], True, 4)[0]) == [blocks[0]]
    assert list(lookup([5, 1, 2, 3], 16, [0], True, 4)[0]) == []
    assert list(lookup([0, 1, 2, 3], 16, [0], False, 8)[0]) == [blocks[0], blocks[1]]
    assert list(lookup([0, 1, 2, 3], 7, [0], False, 8)[0]) == []


@pytest.mark.parametrize(
    ("spec", "num_cached", "num_asked", "hit"),
    [(full(4), 17, 17, 12), (full(4), 17, 16, 8), (sliding(4, 8), 17, 17, 12)],
)
def test_eagle_drops_one_block_in_a_model_of_one_group(
    implementation, spec, num_cached, num_asked, hit
):
    manager = make_manager(implementation, [spec], num_blocks=20, use_eagle=True)
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(num_cached)))
    assert manager.get_computed_blocks(prefixes.request("b", range(num_asked)))[1] == hit


def test_only_known_tokens_are_registered(implementation):
    """Lookahead slots get blocks, but nothing behind the last known token enters the index."""
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(10))
    assert allocate(manager, request, 10, num_lookahead_tokens=3) == ([1, 2, 3, 4],)
    assert list(manager.block_pool.prefix_id)[1:5] == [*request.prefix_ids[:2], -1, -1]


def test_a_request_that_does_not_read_the_cache_still_writes_it(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    prefixes = Prefixes(4)
    shy = prefixes.request("a", range(9))
    shy.skip_reading_prefix_cache = True
    admit(manager, shy)
    again = prefixes.request("b", range(9))
    again.skip_reading_prefix_cache = True
    assert manager.get_computed_blocks(again)[1] == 0
    assert manager.prefix_cache_stats.requests == 0
    assert manager.get_computed_blocks(prefixes.request("c", range(9)))[1] == 8


def test_nothing_to_schedule_is_an_error(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    request = Prefixes(4).request("a", range(9))
    for count in (0, -1):
        with pytest.raises(ValueError):
            manager.allocate_slots(request, count)
