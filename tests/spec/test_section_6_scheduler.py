"""The scheduler. Source: spec/manager.md 6; first come first served is in tests/unit/scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.request import RequestStatus
from tests.helpers import full, mamba
from tests.helpers import tables as tables_of
from tests.spec.serving import Serving
from tests.spec.worlds import num_registered


# -- 6.2 queues ---------------------------------------------------------------------------------
def test_skipped_requests_keep_their_order_in_front_of_older_ones():
    """Two reversals: b and c are passed over for their adapters, d runs; then e behind them."""
    serving = Serving(num_blocks=100, max_loras=1)
    serving.add("a", 5, lora_name="x")
    serving.step()
    for name, lora in (("b", "y"), ("c", "z"), ("d", None)):
        serving.add(name, 5, lora_name=lora)
    assert serving.step().num_scheduled_tokens == {"a": 1, "d": 5}
    assert (serving.ids("skipped_waiting"), serving.ids("waiting")) == (["b", "c"], [])
    serving.add("e", 5, lora_name="w")
    serving.step()
    assert (serving.ids("skipped_waiting"), serving.ids("waiting")) == (["b", "c", "e"], [])


def test_skipped_requests_go_before_older_skipped_ones():
    """The budget ends after c: b, passed over again, stands before d and e, not behind them."""
    serving = Serving(num_blocks=100, max_loras=2, max_num_batched_tokens=16, max_num_seqs=3)
    serving.add("a", 4, lora_name="x", max_tokens=2)
    serving.add("z", 4, lora_name="v")
    serving.step()
    for name, lora in (("b", "y"), ("c", "x"), ("d", "u"), ("e", "u")):
        serving.add(name, 30, lora_name=lora)
    # c shares a's adapter and takes what is left of the budget.
    assert serving.step().num_scheduled_tokens == {"a": 1, "z": 1, "c": 14}
    assert (serving.ids("skipped_waiting"), serving.ids("waiting")) == (["b"], ["d", "e"])


def test_an_adapter_that_is_loaded_already_is_no_new_one():
    serving = Serving(num_blocks=100, max_loras=1)
    for name in "ab":
        serving.add(name, 5, lora_name="x")
    assert serving.steps(1) == [{"a": 5, "b": 5}]


def test_blocked_requests_are_passed_over():
    """6.7: a request that waits for its grammar goes to the skipped ones at once."""
    serving = Serving(num_blocks=100)
    blocked = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    a = serving.add("a", 5, status=blocked)
    serving.add("b", 5)
    assert serving.ids("skipped_waiting") == ["a"]
    assert serving.steps(1) == [{"b": 5}]
    assert serving.ids("skipped_waiting") == ["a"]
    a.status = RequestStatus.WAITING  # the grammar is there
    assert serving.steps(1) == [{"b": 1, "a": 5}]


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        ({"a": (1, 0), "b": (0, 9), "c": (1, 5)}, "bac"),  # smaller priority, then arrival
        ({"c": (0, 3), "b": (0, 3), "a": (0, 3)}, "abc"),  # then request id
    ],
)
def test_priority_then_arrival_then_id(fields, order):
    serving = Serving(num_blocks=100, policy="priority")
    for name, (priority, arrival_ns) in fields.items():
        serving.add(name, 5, priority=priority, arrival_ns=arrival_ns)
    assert serving.ids("waiting") == list(order)
    assert list(serving.step().num_scheduled_tokens) == list(order)


def test_priority_takes_the_smaller_head_of_the_two_queues():
    serving = Serving(num_blocks=100, policy="priority", max_loras=1, max_num_seqs=2)
    serving.add("a", 5, lora_name="x", max_tokens=3)
    serving.step()
    serving.add("b", 5, lora_name="y", priority=1)
    serving.add("c", 5, priority=2)
    assert serving.steps(1) == [{"a": 1, "c": 5}]
    assert serving.ids("skipped_waiting") == ["b"]
    serving.add("d", 5, priority=3)
    assert serving.steps(2) == [{"a": 1, "c": 1}, {"c": 1, "b": 5}]


# -- 6.3 running requests -----------------------------------------------------------------------
def test_the_least_urgent_running_request_is_preempted():
    """Priority: the largest (priority, arrival) goes, wherever it stands; 9 blocks of 4."""
    serving = Serving(num_blocks=10, policy="priority")
    for name, priority in (("a", 1), ("b", 3), ("c", 2)):
        serving.add(name, 11, priority=priority)
    serving.steps(2)
    output = serving.step()
    assert [r.request_id for r in output.preempted] == ["b"]
    assert serving.ids("running") == ["a", "c"]
    assert output.num_scheduled_tokens == {"a": 1, "c": 1}


def test_a_request_that_is_its_own_victim_ends_the_loop():
    """v comes first, needs a fourth block for its 13th token and goes itself: nobody runs."""
    serving = Serving(num_blocks=10, policy="priority", scheduler_reserve_full_isl=False)
    for name, num_tokens, priority in (("v", 12, 0), ("a", 11, 1), ("b", 11, 2)):
        serving.add(name, num_tokens, priority=priority)
    serving.step()
    serving.scheduler.requests["v"].priority = 9
    output = serving.step()
    assert output.num_scheduled_tokens == {}
    assert [r.request_id for r in output.preempted] == ["v"]
    assert serving.ids("running") == ["a", "b"]


def test_a_victim_scheduled_before_is_forgotten():
    """v takes a token at no cost, then a needs a block: v's token returns to the budget."""
    serving = Serving(num_blocks=10, policy="priority", scheduler_reserve_full_isl=False)
    serving.add("v", 10, priority=0)
    serving.add("a", 12, priority=1)
    serving.add("b", 10, priority=2)
    serving.step()
    v, a, b = (serving.scheduler.requests[name] for name in "vab")
    v.priority, a.priority, b.priority = 9, 0, 1
    output = serving.step()
    assert [r.request_id for r in output.preempted] == ["v"]
    assert output.num_scheduled_tokens == {"a": 1, "b": 1}
    assert output.total_num_scheduled_tokens == 2
    assert (v.num_computed_tokens, v.status) == (0, RequestStatus.PREEMPTED)
    assert tables_of(serving.manager, v) == [[]]
    assert (a.num_computed_tokens, b.num_computed_tokens) == (13, 11)


def test_prefills_are_held_back_while_a_decode_runs():
    """throttle_prefills: only if the last release was not bound by capacity."""
    serving = Serving(num_blocks=100, max_num_batched_tokens=8)
    serving.add("a", 4)
    serving.step()
    serving.add("b", 20)
    # No request was waiting at the end of the last step: b is held back.
    assert serving.schedule(throttle_prefills=True).num_scheduled_tokens == {"a": 1}


def test_nothing_is_held_back_without_a_decode():
    serving = Serving(num_blocks=100)
    serving.add("a", 8)
    assert serving.schedule(throttle_prefills=True).num_scheduled_tokens == {"a": 8}


def test_prefills_go_on_while_capacity_bounds_them():
    """c waits at the end of a step: nothing is held back until nobody waits; then b's and c's are.

    vLLM's own scheduler takes these steps.
    """
    serving = Serving(num_blocks=100, max_num_batched_tokens=8)
    serving.add("a", 4)
    serving.step()
    for name in "bc":
        serving.add(name, 20)
    steps = [serving.step(throttle_prefills=is_on) for is_on in (False, True, True, True, False)]
    assert [step.num_scheduled_tokens for step in steps] == [
        {"a": 1, "b": 7},
        {"a": 1, "b": 7},
        {"a": 1, "b": 6, "c": 1},
        {"a": 1, "b": 1},
        {"a": 1, "b": 1, "c": 6},
    ]


def test_a_request_that_lacks_only_its_last_token_is_not_held_back():
    """C5: deferred only if computed' < num_tokens - 1; b hits 16 of 17, c behind it nothing."""
    serving = Serving(num_blocks=100)
    serving.add("a", 17, shared=17)
    serving.step()
    serving.add("b", 17, shared=17)
    serving.add("c", 20)
    assert serving.step(throttle_prefills=True).num_scheduled_tokens == {"a": 1, "b": 1}


# -- 6.5, 6.7 -----------------------------------------------------------------------------------
def test_successive_victims_stand_in_the_order_of_their_admission():
    """Each is prepended; the one admitted first ends up first. Nobody enters in that step."""
    serving = Serving(num_blocks=8, scheduler_reserve_full_isl=False)
    serving.add("a", 12)
    for name in "bcd":
        serving.add(name, 4)
    assert serving.steps(1) == [{"a": 12, "b": 4, "c": 4, "d": 4}]
    # 6 of 7 blocks are held: a takes the last, b gets that of d, c finds only its own.
    output = serving.step()
    assert output.num_scheduled_tokens == {"a": 1, "b": 1}
    assert [r.request_id for r in output.preempted] == ["d", "c"]
    assert serving.ids("waiting") == ["c", "d"]
    assert output.admitted == output.resumed == []


# -- 6.6 speculation ----------------------------------------------------------------------------
def test_three_drafts_one_accepted():
    """Blocks of 4, 10 prompt tokens: 4 blocks for 10 + 3; then n = 4, slots 17, 5 blocks."""
    serving = Serving(num_blocks=100, num_spec_tokens=3, num_lookahead_tokens=3)
    a = serving.add("a", 10)
    assert serving.step().num_scheduled_tokens == {"a": 10}
    assert tables_of(serving.manager, a) == [[1, 2, 3, 4]]
    serving.scheduler.update_draft_token_ids({"a": 3})
    output = serving.schedule()
    assert output.num_scheduled_tokens == {"a": 4}
    assert output.scheduled_spec_decode_tokens == {"a": 3}
    assert tables_of(serving.manager, a) == [[1, 2, 3, 4, 5]]
    assert a.num_computed_tokens == 14
    assert num_registered(serving.manager, 0) == 2  # 11 tokens are known
    serving.accept["a"] = 2
    serving.scheduler.update_from_output(output)
    assert (a.num_computed_tokens, a.num_tokens) == (12, 13)


@pytest.mark.parametrize(("sampled", "computed", "known"), [(1, 11, 12), (4, 14, 15)])
def test_rejected_drafts_are_computed_again(sampled, computed, known):
    """All rejected: computed falls by 3; all accepted: by none."""
    serving = Serving(num_blocks=100, num_spec_tokens=3, num_lookahead_tokens=3)
    a = serving.add("a", 10)
    serving.step()
    serving.scheduler.update_draft_token_ids({"a": 3})
    serving.accept["a"] = sampled
    serving.step()
    assert (a.num_computed_tokens, a.num_tokens) == (computed, known)


def test_a_stop_trims_the_tokens_behind_it():
    """6.6: tokens are appended one by one; max_tokens = 3 is reached in the middle."""
    serving = Serving(num_blocks=100, num_spec_tokens=3, num_lookahead_tokens=3)
    a = serving.add("a", 10, max_tokens=3)
    serving.step()
    serving.scheduler.update_draft_token_ids({"a": 3})
    serving.accept["a"] = 4
    serving.step()
    assert a.num_output_tokens == 3
    assert a.status is RequestStatus.FINISHED_LENGTH_CAPPED


@pytest.mark.parametrize("is_joined_by_a_prompt", [False, True])
def test_a_single_token_among_decodes_is_padded_with_drafts(is_joined_by_a_prompt):
    """C5: n = 1 becomes 1 + 3 if no prefill was among the running ones; p came in this step."""
    serving = Serving(num_blocks=100, num_spec_tokens=3, num_lookahead_tokens=3)
    serving.add("a", 16, shared=16)
    serving.step()
    if is_joined_by_a_prompt:
        serving.add("p", 30)
    b = serving.add("b", 17, shared=16)
    output = serving.schedule()
    assert output.num_scheduled_tokens["b"] == 4
    assert output.scheduled_spec_decode_tokens == {"b": 3}
    assert b.num_computed_tokens == 20
    serving.scheduler.update_from_output(output)
    assert (b.num_computed_tokens, b.num_tokens) == (17, 18)


def test_padding_that_exceeds_the_budget_stops_the_queue():
    serving = Serving(
        num_blocks=100, num_spec_tokens=3, num_lookahead_tokens=3, max_num_batched_tokens=16
    )
    serving.add("a", 16, shared=16)
    serving.step()
    serving.scheduler.limits = replace(serving.scheduler.limits, max_num_batched_tokens=6)
    serving.add("b", 17, shared=16)
    serving.scheduler.update_draft_token_ids({"a": 3})
    assert serving.schedule().num_scheduled_tokens == {"a": 4}
    assert serving.ids("waiting") == ["b"]


# -- 6.8 with EAGLE -----------------------------------------------------------------------------
def test_the_last_state_boundary_is_one_block_lower_under_eagle():
    """18 tokens in blocks of 4: the chunk ends at 12, the rest of 6 follows whole."""
    serving = Serving(full(4), mamba(4), num_blocks=60, use_eagle=True)
    serving.add("a", 18)
    assert serving.steps(2) == [{"a": 12}, {"a": 6}]


# -- 6.10 asynchronous --------------------------------------------------------------------------
def test_placeholders_of_asynchronous_scheduling():
    """10 prompt tokens: computed 10, one placeholder; 11 and two; an output takes one away."""
    serving = Serving(num_blocks=100, async_scheduling=True)
    a = serving.add("a", 10)

    def state():
        return a.num_computed_tokens, a.num_output_placeholders, a.num_tokens

    first = serving.schedule()
    assert state() == (10, 1, 10)
    serving.schedule()
    assert state() == (11, 2, 10)
    serving.scheduler.update_from_output(first)
    assert state() == (11, 1, 11)


def test_a_prefill_chunk_has_no_placeholder():
    serving = Serving(num_blocks=100, async_scheduling=True, max_num_batched_tokens=6)
    a = serving.add("a", 10)
    serving.schedule()
    assert (a.num_computed_tokens, a.num_output_placeholders, a.is_prefill_chunk) == (6, 0, True)
    serving.schedule()
    assert (a.num_computed_tokens, a.num_output_placeholders, a.is_prefill_chunk) == (10, 1, False)


def test_asynchronous_scheduling_stops_at_the_last_token():
    """B.1: the placeholders guarantee max_tokens; nothing beyond is scheduled."""
    serving = Serving(num_blocks=100, async_scheduling=True)
    a = serving.add("a", 10, max_tokens=2)
    first, second = serving.schedule(), serving.schedule()
    serving.scheduler.update_from_output(first)
    # 11 computed, one placeholder: 11 + 2 - 1 >= 10 + 2.
    assert serving.schedule().num_scheduled_tokens == {}
    serving.scheduler.update_from_output(second)
    assert (a.num_tokens, a.status) == (12, RequestStatus.FINISHED_LENGTH_CAPPED)


def test_asynchronous_outputs_register_what_they_complete():
    """6.10: cache_blocks(computed - placeholders) when an output of a running request arrives."""
    serving = Serving(num_blocks=100, async_scheduling=True)
    a = serving.add("a", 7)
    first, second = serving.schedule(), serving.schedule()
    assert num_registered(serving.manager, 0) == 1  # 7 known tokens
    serving.scheduler.update_from_output(first)
    # 8 are known and computed, but one is a placeholder: 8 - 1 = 7.
    assert (a.num_tokens, a.num_output_placeholders) == (8, 1)
    assert num_registered(serving.manager, 0) == 1
    serving.scheduler.update_from_output(second)
    assert (a.num_tokens, a.num_output_placeholders) == (9, 0)
    assert num_registered(serving.manager, 0) == 2


def test_a_reset_turns_placeholders_into_stale_frames():
    """6.7: preempted with one output in flight; that output is dropped when it comes."""
    serving = Serving(num_blocks=100, async_scheduling=True)
    a = serving.add("a", 10)
    output = serving.schedule()
    assert serving.scheduler.reset_prefix_cache(reset_running_requests=True) is True
    assert (a.num_output_placeholders, a.async_tokens_to_discard) == (0, 1)
    serving.scheduler.update_from_output(output)
    assert (a.num_tokens, a.async_tokens_to_discard) == (10, 0)
    assert serving.ids("waiting") == ["a"]


# -- 6.3 output ---------------------------------------------------------------------------------
def test_common_prefix_is_told_for_the_first_running_request():
    serving = Serving(num_blocks=100)
    assert list(serving.step().num_common_prefix_blocks) == [0]
    serving.add("a", 20, shared=8)
    serving.add("b", 20, shared=8)
    assert list(serving.step().num_common_prefix_blocks) == [2]


def test_preempted_ids_are_told_with_the_step():
    serving = Serving(num_blocks=10)
    for name in "abc":
        serving.add(name, 11)
    serving.steps(2)
    assert set(serving.step().preempted_req_ids) == {"c"}
    assert set(serving.step().preempted_req_ids) == set()
