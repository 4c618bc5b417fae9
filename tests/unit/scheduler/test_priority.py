"""Priority, adapters, blocked requests, throttled prefills. Source: spec/manager.md 6.3, 6.5."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.request import RequestStatus
from tests.spec.serving import Serving


@pytest.mark.parametrize(("fixes", "second"), [((), {"a": 1}), (("Q7",), {"a": 1, "b": 1})])
def test_a_victim_that_was_skipped_makes_the_loop_pass_over_another(fixes, second):
    """Q7. Five blocks of 4: v has one, a two, b two; v stands first and waits for its last token.

    a needs a third block, so v goes. The reference does not move its place in the list, and b,
    which has room in its second block, is passed over.
    """
    serving = Serving(
        num_blocks=6, policy="priority", async_scheduling=True, fixes=frozenset(fixes)
    )
    v = serving.add("v", 4, priority=9, max_tokens=1)
    assert serving.schedule().num_scheduled_tokens == {"v": 4}
    serving.add("a", 8, priority=0)
    serving.add("b", 5, priority=1)
    assert serving.schedule().num_scheduled_tokens == {"a": 8, "b": 5}
    output = serving.schedule()
    assert output.preempted == [v]
    assert output.num_scheduled_tokens == second
    check_integrity(serving.manager)


def test_undoing_takes_back_blocks_tokens_and_placeholders():
    """9 blocks of 4. v takes a fourth block for token 13, then a finds none for its own."""
    serving = Serving(
        num_blocks=10, policy="priority", async_scheduling=True, scheduler_reserve_full_isl=False
    )
    v = serving.add("v", 12, priority=0)
    a = serving.add("a", 12, priority=1)
    b = serving.add("b", 8, priority=2)
    serving.step()
    v.priority, a.priority, b.priority = 9, 0, 1
    output = serving.schedule()
    # v, first in the list, took the ninth block; a finds none and v is undone; b needs its third.
    assert output.num_scheduled_tokens == {"a": 1, "b": 1}
    assert (output.preempted, list(output.new_block_ids)) == ([v], ["a", "b"])
    assert (output.decode, output.prefill) == ([12, 8], [])
    # Its first token is there; the second was never under way.
    assert (v.num_tokens, v.num_output_placeholders, v.num_computed_tokens) == (13, 0, 0)
    check_integrity(serving.manager)


def test_a_blocked_request_runs_when_it_is_ready_and_can_be_aborted_before():
    serving = Serving(num_blocks=100)
    blocked = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    a = serving.add("a", 5, status=blocked)
    serving.add("b", 5, status=blocked)
    assert serving.steps(1) == [{}]
    assert serving.scheduler.get_request_counts() == (0, 2)
    serving.scheduler.unblock("a")
    serving.scheduler.unblock("nobody")
    serving.scheduler.finish_requests("b", RequestStatus.FINISHED_ABORTED)
    assert serving.steps(1) == [{"a": 5}]
    assert (a.status, serving.ids("skipped_waiting")) == (RequestStatus.RUNNING, [])


def test_throttling_lets_prefills_go_that_waited_for_capacity():
    """Two may run. c waits when the prefills are released, so the next step holds nothing back."""
    serving = Serving(num_blocks=100, max_num_batched_tokens=8, max_num_seqs=2)
    serving.add("a", 4)
    serving.step()
    serving.add("b", 20)
    serving.add("c", 4)
    assert serving.step(throttle_prefills=True).num_scheduled_tokens == {"a": 1}
    assert serving.step().num_scheduled_tokens == {"a": 1, "b": 7}  # c waits
    assert serving.step(throttle_prefills=True).num_scheduled_tokens == {"a": 1, "b": 7}


def test_throttling_holds_a_running_prefill_back():
    serving = Serving(num_blocks=100, max_num_batched_tokens=8)
    serving.add("a", 4)
    serving.add("b", 20)
    assert serving.step().num_scheduled_tokens == {"a": 4, "b": 4}
    assert serving.step(throttle_prefills=True).num_scheduled_tokens == {"a": 1}
    assert serving.step().num_scheduled_tokens == {"a": 1, "b": 7}


def test_all_requests_can_be_ended_at_once():
    serving = Serving(num_blocks=100, max_num_seqs=1)
    for name in "abc":
        serving.add(name, 5)
    serving.step()
    ended = serving.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    assert [request.request_id for request in ended] == ["a", "b", "c"]
    assert serving.scheduler.get_request_counts() == (0, 0)
    assert serving.manager.block_pool.get_num_free_blocks() == 99


def test_vllms_hit_is_that_of_the_last_admission_before_the_first_output():
    """Chunks of 8: preempted after one of them, the request hits its own two blocks of 4."""
    serving = Serving(num_blocks=100, max_num_batched_tokens=8)
    a = serving.add("a", 20)
    serving.step()
    serving.scheduler._preempt_request(serving.scheduler.running.pop())
    serving.step()
    assert (a.num_cached_tokens, a.num_prefill_cached_tokens) == (0, 8)
