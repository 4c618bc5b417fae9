"""Requests that go away, and resets, in every state that a request can be in."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.request import Request, RequestStatus
from tests.faults.live import NUM_BLOCKS, Live

ABORTED = RequestStatus.FINISHED_ABORTED
BLOCKED = [status for status in RequestStatus if status.is_blocked]


def has_begun(request: Request) -> bool:
    return request.status is RequestStatus.RUNNING


STATES = {
    "waiting": lambda r: r.status is RequestStatus.WAITING,
    "first chunk of a prefill": lambda r: has_begun(r) and r.num_computed_tokens < r.num_tokens,
    "decoding": lambda r: has_begun(r) and r.num_output_tokens > 0,
    "preempted": lambda r: r.status is RequestStatus.PREEMPTED,
    "preempted after its first token": lambda r: (
        r.status is RequestStatus.PREEMPTED and r.num_output_tokens > 0
    ),
}


def until(live: Live, is_wanted) -> Request:
    """Run on until some request is in the wanted state."""
    for _ in range(400):
        for request in live.scheduler.requests.values():
            if is_wanted(request):
                return request
        live.step()
    raise AssertionError("no request ever gets there")


def nothing_is_left_of(live: Live, request: Request) -> None:
    check_integrity(live.manager)
    assert request.request_id not in live.scheduler.requests
    assert request not in list(live.scheduler.waiting) + live.scheduler.running
    assert request not in list(live.scheduler.skipped_waiting)
    for group_id in range(3):
        assert request.request_id not in live.single(group_id).req_to_blocks
        assert request.request_id not in live.single(group_id).num_cached_block


def everything_ends_well(live: Live) -> None:
    """The others finish; then all blocks are free and the cache can be emptied (law 31)."""
    for _ in range(2000):
        if not live.scheduler.requests:
            break
        live.scheduler.update_from_output(live.scheduler.schedule())
    assert not live.scheduler.requests
    check_integrity(live.manager)
    assert live.pool.get_num_free_blocks() == NUM_BLOCKS - 1
    assert live.manager.reset_prefix_cache()
    check_integrity(live.manager)
    assert live.pool.num_cached_free == 0


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("state", STATES)
def test_an_abort_leaves_nothing_behind(state, policy):
    live = Live(11, policy=policy).run(3)
    request = until(live, STATES[state])
    assert live.scheduler.finish_requests([request.request_id], ABORTED) == [request]
    assert request.status is ABORTED
    nothing_is_left_of(live, request)
    assert live.scheduler.finish_requests([request.request_id], ABORTED) == []
    everything_ends_well(live)


@pytest.mark.parametrize("state", BLOCKED)
def test_an_abort_of_a_blocked_request_leaves_nothing_behind(state):
    live = Live(12).run(5)
    request = live.add()
    live.scheduler.finish_requests([request.request_id], ABORTED)
    blocked = Request("blocked", 20, 5, live.names.of_spans(live.spans("b")).tolist(), status=state)
    live.scheduler.add_request(blocked)
    live.step()
    assert blocked.status is state
    live.scheduler.finish_requests(["blocked"], ABORTED)
    nothing_is_left_of(live, blocked)
    everything_ends_well(live)


@pytest.mark.parametrize("seed", range(6))
def test_an_abort_between_a_step_and_its_outputs_leaves_nothing_behind(seed):
    """Each request of a step in turn goes away while the step runs."""
    live = Live(20 + seed).run(5)
    for turn in range(30):
        live.step()
        output = live.scheduler.schedule()
        scheduled = [entry[0] for entry in output.scheduled]
        if not scheduled:
            live.scheduler.update_from_output(output)
            continue
        request = scheduled[turn % len(scheduled)]
        live.scheduler.finish_requests([request.request_id], ABORTED)
        known = request.num_tokens
        live.scheduler.update_from_output(output)
        assert request.num_tokens == known, "an ended request gets no token"
        nothing_is_left_of(live, request)
    everything_ends_well(live)


@pytest.mark.parametrize("state", STATES)
def test_a_reset_is_refused_or_complete_and_a_forced_one_complete(state):
    live = Live(13).run(3)
    until(live, STATES[state])
    entries = [dict(index) for index in live.pool.cached_blocks]
    in_use = live.pool.get_num_free_blocks() < NUM_BLOCKS - 1
    assert live.scheduler.reset_prefix_cache() is not in_use
    assert [dict(i) for i in live.pool.cached_blocks] == (entries if in_use else [{}, {}, {}])
    check_integrity(live.manager)
    assert live.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert live.pool.cached_blocks == [{}, {}, {}]
    assert live.pool.get_num_free_blocks() == NUM_BLOCKS - 1
    assert not live.scheduler.running
    check_integrity(live.manager)
    everything_ends_well(live)


def test_a_forced_reset_while_a_step_runs_loses_no_request():
    live = Live(14).run(10)
    names = set(live.scheduler.requests)
    output = live.scheduler.schedule()
    assert live.scheduler.reset_prefix_cache(reset_running_requests=True)
    ended = {r.request_id for r in live.scheduler.update_from_output(output)}
    assert set(live.scheduler.requests) == names - ended
    check_integrity(live.manager)
    everything_ends_well(live)


def test_a_reset_with_partial_entries_forgets_them():
    live = Live(15).run(10)
    block_id = next(
        b
        for t in live.single(0).req_to_blocks.values()
        for b in t
        if b and live.pool.prefix_id[b] < 0
    )
    ids = [10**6 + i for i in range(4)]
    for num_tokens in (12, 4):
        live.pool.cache_partial_block("x", block_id, num_tokens, ids, 0, 8)
    assert live.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert live.pool.partial_keys == {}
    check_integrity(live.manager)
    everything_ends_well(live)
