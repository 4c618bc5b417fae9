"""The door of the scheduler. Source: spec/manager.md 5."""

from __future__ import annotations

from sim.request import RequestStatus
from tests.helpers import Prefixes, admit, allocate, decode, full, make_manager, sliding
from tests.helpers import tables as tables_of


def test_slots_end_at_the_models_length(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20, max_model_len=10)
    request = Prefixes(4).request("a", range(9))
    assert allocate(manager, request, 9, num_lookahead_tokens=9) == ([1, 2, 3],)


def test_statistics_count_attempts_and_keep_preempted_ones_apart(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(10)))
    again = prefixes.request("b", range(10))
    manager.get_computed_blocks(again)
    manager.get_computed_blocks(again)
    stats = manager.prefix_cache_stats
    assert (stats.requests, stats.queries, stats.hits) == (3, 30, 16)
    again.num_preemptions = 1
    again.num_tokens += 3
    manager.get_computed_blocks(again)
    assert (stats.requests, stats.queries, stats.hits) == (3, 30, 16)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 13, 8)


def test_the_watermark_binds_waiting_requests_behind_others(implementation):
    """0.25 of 20 is 5: 10 blocks + 5 > 14 free, 9 + 5 fit, and running requests ignore it."""
    manager = make_manager(implementation, [full(4)], num_blocks=20, watermark=0.25)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(20))
    admit(manager, first, full_sequence_must_fit=True, has_scheduled_reqs=False)
    big = prefixes.request("b", "b" * 40)
    for gate in (True, False):
        assert admit(manager, big, full_sequence_must_fit=gate) == (0, None)
    _, new = admit(manager, big, has_scheduled_reqs=False)
    assert len(new[0]) == 10
    manager.free(big)
    big.num_computed_tokens = 0
    big.status = RequestStatus.PREEMPTED
    assert admit(manager, big)[1] is None
    smaller = prefixes.request("c", "c" * 36)
    assert len(admit(manager, smaller)[1][0]) == 9
    for _ in range(5):
        assert decode(manager, first) is not None


def test_a_refused_running_request_has_its_window_cleared_already(implementation):
    """Step 6 comes before the refusal of step 7; the table of the full group is unchanged."""
    manager = make_manager(implementation, [full(4), sliding(4, 4)], num_blocks=7)
    request = Prefixes(4).request("a", range(24))
    assert allocate(manager, request, 12) == ([1, 2, 3], [4, 5, 6])
    # S(12) = 9: two sliding blocks are released, but 12 more tokens need 3 + 3.
    assert allocate(manager, request, 12) is None
    assert tables_of(manager, request) == [[1, 2, 3], [0, 0, 6]]
    assert allocate(manager, request, 4) == ([5], [4])


def test_freeing_an_unknown_request_is_legal(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    manager.free(Prefixes(4).request("a", range(9)))
    assert manager.block_pool.get_num_free_blocks() == 19
    assert manager.usage == 0


def test_a_block_completed_by_the_last_sampled_token_is_never_registered(implementation):
    """7 prompt tokens and one sampled: 8 are known, 7 are computed, one block is registered."""
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    request = Prefixes(4).request("a", range(7))
    admit(manager, request)
    request.num_tokens += 1
    manager.free(request)
    assert manager.block_pool.num_cached_free == 1


def test_two_requests_of_one_step_share_what_the_step_will_compute(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=20)
    prefixes = Prefixes(4)
    manager.new_step_starts()
    admit(manager, prefixes.request("a", range(12)))
    assert admit(manager, prefixes.request("b", [*range(12), "x"])) == (12, ([4],))


def test_gate_looks_at_the_whole_sequence(implementation):
    manager = make_manager(implementation, [full(4)], num_blocks=6)
    request = Prefixes(4).request("a", range(24))  # 6 blocks, 5 usable
    assert admit(manager, request, 4, full_sequence_must_fit=True) == (0, None)
    assert admit(manager, request, 4, full_sequence_must_fit=False) == (0, ([1],))
