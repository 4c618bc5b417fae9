"""Scheduler examples. Source: spec/manager.md 6.3, 6.5, 6.6, appendix C 10; real_cases.md B14."""

from __future__ import annotations

import pytest

from sim.request import RequestStatus
from tests.helpers import free_list, full
from tests.unit.scheduler.serving import Serving


def test_budget_is_shared_in_order(implementation):
    serving = Serving(
        implementation, [full(4)], num_blocks=100, limits={"max_num_batched_tokens": 16}
    )
    for name in ("r0", "r1", "r2"):
        serving.add(name, 10)
    assert serving.steps(3) == [
        {"r0": 10, "r1": 6},
        {"r0": 1, "r1": 4, "r2": 10},
        {"r0": 1, "r1": 1, "r2": 1},
    ]


def test_long_prefill_threshold(implementation):
    limits = {"max_num_batched_tokens": 32, "long_prefill_token_threshold": 10}
    serving = Serving(implementation, [full(4)], num_blocks=100, limits=limits)
    for name in "abcd":
        serving.add(name, 30)
    assert serving.steps(1) == [{"a": 10, "b": 10, "c": 10, "d": 2}]


def test_without_chunked_prefill_a_prompt_waits_for_the_whole_budget(implementation):
    limits = {"max_num_batched_tokens": 32, "enable_chunked_prefill": False}
    serving = Serving(implementation, [full(4)], num_blocks=100, limits=limits)
    serving.add("a", 20)
    serving.add("b", 20)
    assert serving.steps(2) == [{"a": 20}, {"a": 1, "b": 20}]


def test_max_num_seqs(implementation):
    serving = Serving(implementation, [full(4)], num_blocks=100, limits={"max_num_seqs": 2})
    serving.add("a", 5, max_tokens=2)
    for name in "bc":
        serving.add(name, 5)
    assert serving.steps(3) == [{"a": 5, "b": 5}, {"a": 1, "b": 1}, {"b": 1, "c": 5}]


def test_gate_keeps_the_second_request_out(implementation):
    """9 usable blocks of 4; 30 tokens need 8 blocks."""
    limits = {"max_num_batched_tokens": 8}
    serving = Serving(implementation, [full(4)], num_blocks=10, limits=limits)
    serving.add("a", 30, max_tokens=5)
    serving.add("b", 30)
    assert serving.steps(8) == [{"a": 8}] * 3 + [{"a": 6}] + [{"a": 1}] * 4
    assert serving.steps(1) == [{"b": 8}]


def test_without_the_gate_the_second_request_is_admitted_and_preempted(implementation):
    limits = {"max_num_batched_tokens": 8, "scheduler_reserve_full_isl": False}
    serving = Serving(implementation, [full(4)], num_blocks=10, limits=limits)
    serving.add("a", 30)
    b = serving.add("b", 30)
    assert serving.steps(4) == [{"a": 8}, {"a": 8}, {"a": 8}, {"a": 6, "b": 2}]
    output = serving.step()
    assert output.num_scheduled_tokens == {"a": 1}
    assert [r.request_id for r in output.preempted] == ["b"]
    assert (b.status, b.num_computed_tokens, b.num_preemptions) == (RequestStatus.PREEMPTED, 0, 1)
    assert [r.request_id for r in serving.scheduler.waiting] == ["b"]


def test_watermark(implementation):
    """0.25 of 20 blocks: b's 10 blocks + 5 do not fit into 14 free ones while a runs."""
    serving = Serving(implementation, [full(4)], num_blocks=20, watermark=0.25)
    serving.add("a", 20)
    serving.add("b", 40)
    assert serving.steps(2) == [{"a": 20}, {"a": 1}]
    alone = Serving(implementation, [full(4)], num_blocks=20, watermark=0.25)
    alone.add("b", 72)  # 18 of 19 blocks
    assert alone.steps(1) == [{"b": 72}]


def test_a_blocked_request_is_counted_in_every_step(implementation):
    """Two 20-token prompts, 9 usable blocks of 4: queries 40, 20, 20, 20."""
    serving = Serving(implementation, [full(4)], num_blocks=10)
    serving.add("a", 20)
    serving.add("b", 20)
    stats, queries = serving.manager.prefix_cache_stats, []
    for _ in range(4):
        before = stats.queries
        serving.step()
        queries.append(stats.queries - before)
    assert queries == [40, 20, 20, 20]
    assert stats.hits == 0 and stats.requests == 5


def test_preemption_by_recomputation(implementation):
    """9 blocks, three 11-token prompts: the third goes when the first needs a fourth block."""
    serving = Serving(implementation, [full(4)], num_blocks=10)
    for name in "abc":
        serving.add(name, 11)
    assert serving.steps(2) == [{"a": 11, "b": 11, "c": 11}, {"a": 1, "b": 1, "c": 1}]
    stats = serving.manager.prefix_cache_stats
    before = stats.queries
    output = serving.step()
    assert output.num_scheduled_tokens == {"a": 1, "b": 1}
    assert [r.request_id for r in output.preempted] == ["c"]
    assert stats.preempted_queries == 0  # nothing is admitted in a step that preempts
    for attempt in (1, 2):
        serving.step()
        assert stats.preempted_requests == attempt
        assert stats.preempted_queries == 13 * attempt
        assert stats.preempted_hits == 4 * attempt
    assert stats.queries == before


def test_a_resumed_request_recomputes_its_outputs(implementation):
    serving = Serving(implementation, [full(4)], num_blocks=10)
    a, b = serving.add("a", 11, max_tokens=4), serving.add("b", 11, max_tokens=4)
    c = serving.add("c", 11, max_tokens=6)
    serving.steps(3)
    assert c.num_tokens == 13
    serving.step()
    assert a.status is b.status is RequestStatus.FINISHED_LENGTH_CAPPED
    output = serving.step()
    # c's first block survived: 4 tokens are hit, 9 are computed again.
    assert output.num_scheduled_tokens == {"c": 9}
    assert [r.request_id for r in output.resumed] == ["c"]
    assert sorted(output.finished_req_ids) == ["a", "b"]
    assert c.num_tokens == 14


def test_finishing_by_length_and_by_the_models_length(implementation):
    serving = Serving(implementation, [full(4)], num_blocks=20, limits={"max_model_len": 12})
    a, b = serving.add("a", 5, max_tokens=2), serving.add("b", 10)
    serving.step()
    assert (a.num_output_tokens, b.num_output_tokens) == (1, 1)
    output = serving.scheduler.schedule()
    finished = serving.scheduler.update_from_output(output)
    assert [r.request_id for r in finished] == ["a", "b"]  # b has 12 tokens now
    assert (a.num_output_tokens, b.num_tokens) == (2, 12)
    assert serving.manager.block_pool.get_num_free_blocks() == 19
    assert len(serving.scheduler.running) == len(serving.scheduler.waiting) == 0


def test_abort_frees_and_is_reported_once(implementation):
    serving = Serving(implementation, [full(4)], num_blocks=20, limits={"max_num_seqs": 1})
    a, b = serving.add("a", 5), serving.add("b", 10)
    serving.step()
    serving.scheduler.finish_requests(["b", "a", "nobody"], RequestStatus.FINISHED_ABORTED)
    assert a.status is b.status is RequestStatus.FINISHED_ABORTED
    assert serving.manager.block_pool.get_num_free_blocks() == 19
    output = serving.step()
    assert sorted(output.finished_req_ids) == ["a", "b"]
    assert output.total_num_scheduled_tokens == 0
    assert serving.step().finished_req_ids == []


@pytest.mark.parametrize("max_tokens", [1, 2])
def test_output_of_an_aborted_request_is_dropped(implementation, max_tokens):
    """An abort may come while the step runs; 6.6 skips what is unknown or already finished."""
    serving = Serving(implementation, [full(4)], num_blocks=20)
    a = serving.add("a", 5, max_tokens=max_tokens)
    output = serving.scheduler.schedule()
    serving.scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    assert serving.scheduler.update_from_output(output) == []
    assert (a.num_tokens, a.status) == (5, RequestStatus.FINISHED_ABORTED)
    assert serving.manager.block_pool.get_num_free_blocks() == 19
    assert serving.step().finished_req_ids == ["a"]


@pytest.mark.parametrize(("max_tokens", "left"), [(1, []), (2, ["a"])])
def test_output_of_a_preempted_request_is_kept(implementation, max_tokens, left):
    """6.6: one that was preempted meanwhile gets its token, and may end in the waiting queue."""
    serving = Serving(implementation, [full(4)], num_blocks=20)
    a = serving.add("a", 5, max_tokens=max_tokens)
    output = serving.scheduler.schedule()
    assert serving.scheduler.reset_prefix_cache(reset_running_requests=True) is True
    finished = serving.scheduler.update_from_output(output)
    assert [r.request_id for r in finished] == ([] if left else ["a"])
    assert [r.request_id for r in serving.scheduler.waiting] == left
    assert (a.num_tokens, a.num_computed_tokens) == (6, 0)


def test_forced_reset_puts_the_running_requests_back_in_order(implementation):
    serving = Serving(implementation, [full(4)], num_blocks=20, limits={"max_num_seqs": 2})
    for name in "abc":
        serving.add(name, 5)
    serving.step()
    assert serving.scheduler.reset_prefix_cache() is False
    assert serving.scheduler.reset_prefix_cache(reset_running_requests=True) is True
    assert [r.request_id for r in serving.scheduler.waiting] == ["a", "b", "c"]
    assert len(serving.scheduler.running) == 0
    output = serving.step()
    assert output.num_scheduled_tokens == {"a": 6, "b": 6}
    assert [r.request_id for r in output.resumed] == ["a", "b"]


def test_new_block_ids(implementation):
    """The whole table for an admitted request; nothing for a step that needs no block."""
    serving = Serving(implementation, [full(4)], num_blocks=20)
    serving.add("a", 7, shared=4)
    assert serving.step().new_block_ids == {"a": ([1, 2],)}
    serving.add("b", 7, shared=4)
    assert serving.step().new_block_ids == {"b": ([1, 3],)}
    assert serving.step().new_block_ids == {"a": ([4],)}


# -- what never fits --------------------------------------------------------------------
@pytest.mark.parametrize(("num_tokens", "starts"), [(1008, True), (1009, False), (1024, False)])
def test_the_null_block_is_missing_from_the_pool(implementation, num_tokens, starts):
    """B14: 64 blocks of 16 are 63 usable ones: 1,008 tokens; 1,024 wait for ever at 0 % usage."""
    serving = Serving(implementation, [full(16)], num_blocks=64, limits={"max_model_len": 1024})
    serving.add("a", num_tokens, max_tokens=1)
    assert bool(serving.step().total_num_scheduled_tokens) is starts
    if not starts:
        assert serving.steps(3) == [{}, {}, {}]
        assert serving.manager.usage == 0


@pytest.mark.parametrize(
    ("num_blocks", "block_size", "servable"), [(8, 128, 896), (13, 8192, 98304)]
)
def test_one_block_less_than_the_pool_can_be_served(
    implementation, num_blocks, block_size, servable
):
    """B14: a CPU pool of 8 x 128, and 13 x 8192 against a model length of 106,496."""
    limits = {"max_model_len": 2 * num_blocks * block_size, "max_num_batched_tokens": 1 << 20}
    for extra, starts in ((0, True), (1, False)):
        serving = Serving(implementation, [full(block_size)], num_blocks=num_blocks, limits=limits)
        serving.add("a", servable + extra, max_tokens=1)
        assert bool(serving.step().total_num_scheduled_tokens) is starts


def test_everything_is_free_after_the_last_request(implementation):
    serving = Serving(implementation, [full(4)], num_blocks=20)
    for name in "abcdef":
        serving.add(name, 13, shared=8, max_tokens=5)
    for _ in range(40):
        serving.step()
    assert serving.scheduler.requests == {}
    assert sorted(free_list(serving.manager)) == list(range(1, 20))
    assert serving.scheduler.reset_prefix_cache() is True
