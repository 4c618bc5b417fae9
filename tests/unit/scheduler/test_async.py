"""Steps that are scheduled before the outputs of the one before. Source: spec/manager.md 6.10."""

from __future__ import annotations

import pytest

from sim.errors import InvariantError
from sim.request import RequestStatus
from tests.helpers import full
from tests.helpers import tables as tables_of
from tests.spec.serving import Serving


def in_flight(serving, request):
    return request.num_tokens, request.num_computed_tokens, request.num_output_placeholders


def test_a_request_that_ends_by_eos_is_scheduled_one_step_too_many():
    serving = Serving(num_blocks=20, async_scheduling=True)
    a = serving.add("a", 6, max_tokens=9, stop_after=2)
    first, second = serving.schedule(), serving.schedule()
    assert serving.scheduler.update_from_output(first) == []
    third = serving.schedule()
    assert third.num_scheduled_tokens == {"a": 1}
    assert serving.scheduler.update_from_output(second) == [a]
    assert (a.num_tokens, a.status) == (8, RequestStatus.FINISHED_STOPPED)
    assert serving.scheduler.update_from_output(third) == []
    assert serving.manager.block_pool.get_num_free_blocks() == 19


def test_max_tokens_is_foreseen_and_eos_at_the_same_token_counts_first():
    serving = Serving(num_blocks=20, async_scheduling=True)
    a = serving.add("a", 6, max_tokens=2, stop_after=2)
    first, second = serving.schedule(), serving.schedule()
    serving.scheduler.update_from_output(first)
    assert serving.schedule().scheduled == []
    assert serving.scheduler.update_from_output(second) == [a]
    assert a.status is RequestStatus.FINISHED_STOPPED


def test_the_models_length_is_foreseen_too():
    """Length 8: 6 prompt tokens, the seventh is computed, the eighth only sampled."""
    serving = Serving(num_blocks=20, async_scheduling=True, max_model_len=8)
    a = serving.add("a", 6)
    outputs = [serving.schedule(), serving.schedule()]
    assert serving.schedule().scheduled == []
    for output in outputs:
        serving.scheduler.update_from_output(output)
    assert (a.num_tokens, a.status) == (8, RequestStatus.FINISHED_LENGTH_CAPPED)


def test_a_preempted_request_gets_the_token_that_was_in_flight():
    """Three blocks of 4. a and b fill two; a's fifth token takes the third, so b goes."""
    serving = Serving(num_blocks=4, async_scheduling=True, scheduler_reserve_full_isl=False)
    a, b = serving.add("a", 4), serving.add("b", 4)
    first = serving.schedule()
    second = serving.schedule()
    assert second.num_scheduled_tokens == {"a": 1}
    assert [r.request_id for r in second.preempted] == ["b"]
    assert in_flight(serving, b) == (4, 0, 1)
    serving.scheduler.update_from_output(first)
    assert in_flight(serving, a) == (5, 5, 1)
    assert in_flight(serving, b) == (5, 0, 0)
    assert b.status is RequestStatus.PREEMPTED


def test_a_request_may_end_while_it_waits_again():
    serving = Serving(num_blocks=4, async_scheduling=True, scheduler_reserve_full_isl=False)
    serving.add("a", 4)
    b = serving.add("b", 4, max_tokens=5, stop_after=1)
    first = serving.schedule()
    serving.schedule()
    assert b.status is RequestStatus.PREEMPTED
    assert serving.scheduler.update_from_output(first) == [b]
    assert serving.ids("waiting") == []


def test_blocks_are_registered_when_their_last_token_is_known_and_computed():
    """Blocks of 4, prompt of 6: the third step computes token 8 and knows only 7."""
    serving = Serving(full(4), num_blocks=20, async_scheduling=True)
    a = serving.add("a", 6, max_tokens=3)
    pool, second_block = serving.manager.block_pool, 2
    outputs = [serving.schedule(), serving.schedule()]  # computed 6, 7
    serving.scheduler.update_from_output(outputs[0])
    outputs.append(serving.schedule())
    assert (a.num_computed_tokens, a.num_tokens) == (8, 7)
    assert tables_of(serving.manager, a) == [[1, second_block]]
    assert pool.prefix_id[second_block] < 0
    serving.scheduler.update_from_output(outputs[1])
    # 8 known, 8 computed, but the last one is in flight: 8 - 1 = 7.
    assert pool.prefix_id[second_block] < 0
    serving.scheduler.update_from_output(outputs[2])
    # The end came with it: registered, then given back.
    assert pool.prefix_id[second_block] >= 0
    assert pool.ref_cnt[second_block] == 0


def test_two_resets_with_one_output_in_flight_are_noticed():
    """The reference forgets the first reset's stale output and asserts when it comes."""
    serving = Serving(num_blocks=20, async_scheduling=True, max_num_batched_tokens=4)
    a = serving.add("a", 6)
    serving.step()
    stale = serving.schedule()
    serving.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert a.async_tokens_to_discard == 1
    assert serving.schedule().num_scheduled_tokens == {"a": 4}  # a chunk: nothing will come of it
    serving.scheduler.reset_prefix_cache(reset_running_requests=True)
    with pytest.raises(InvariantError, match="more tokens than were in flight"):
        serving.scheduler.update_from_output(stale)
