"""Scheduler examples. Source: spec/manager.md 6.3, 6.5, 6.8, appendix C 10; real_cases.md."""

from __future__ import annotations

import pytest

from sim.request import RequestStatus
from tests.helpers import Prefixes, free_list, full, make_manager, mamba


class Serving:
    """A scheduler, its manager, and requests whose prompts share nothing unless asked to."""

    def __init__(
        self,
        implementation,
        specs,
        *,
        num_blocks,
        align=None,
        limits=None,
        hash_block_size=None,
        **kw,
    ):
        settings = {"max_num_batched_tokens": 8192, "max_num_seqs": 64, "max_model_len": 8192}
        settings.update(limits or {})
        self.manager = make_manager(
            implementation,
            specs,
            num_blocks=num_blocks,
            hash_block_size=hash_block_size,
            max_model_len=settings["max_model_len"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            **kw,
        )
        self.scheduler = implementation.Scheduler(
            self.manager, implementation.SchedulerLimits(**settings), align
        )
        self.prefixes = Prefixes(hash_block_size or min(spec.block_size for spec in specs))

    def add(self, request_id, num_tokens, *, shared=0, max_tokens=1000):
        prompt = [*range(shared), *((request_id, i) for i in range(num_tokens - shared))]
        request = self.prefixes.request(request_id, prompt, max_tokens=max_tokens)
        self.scheduler.add_request(request)
        return request

    def step(self):
        output = self.scheduler.schedule()
        self.scheduler.update_from_output(output)
        return output

    def steps(self, count):
        return [self.step().num_scheduled_tokens for _ in range(count)]


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


# -- align mode -------------------------------------------------------------------------
def align_serving(implementation, block_size, budget, num_blocks=60, max_model_len=8192):
    return Serving(
        implementation,
        [full(block_size), mamba(block_size)],
        num_blocks=num_blocks,
        align=block_size,
        limits={"max_num_batched_tokens": budget, "max_model_len": max_model_len},
    )


@pytest.mark.parametrize(
    ("budget", "num_tokens", "chunks"),
    [
        (18, 18, [16, 2]),  # n 18 -> 16; at 16: 2 -> 2
        (10, 18, [8, 8, 2]),  # n 10 -> 8
        (7, 18, [4, 4, 4, 4, 2]),  # n 7 -> 4, also at 4
        (16, 16, [16]),
        (3, 3, [3]),
    ],
)
def test_chunks_end_where_a_state_can_be_kept(implementation, budget, num_tokens, chunks):
    serving = align_serving(implementation, 4, budget)
    serving.add("a", num_tokens)
    assert serving.steps(len(chunks) + 1) == [{"a": n} for n in [*chunks, 1]]


@pytest.mark.parametrize(
    ("num_tokens", "eagle", "computed", "num_new", "hint", "result"),
    [
        (18, False, 0, 18, 0, 16),
        (18, False, 0, 10, 0, 8),
        (18, False, 0, 3, 0, 0),
        (18, False, 16, 2, 0, 2),
        (18, False, 4, 7, 0, 4),
        (18, False, 0, 18, 8, 8),
        (18, False, 0, 18, 3, 16),
        (18, True, 0, 18, 0, 12),
        (18, True, 12, 6, 0, 6),
        (16, False, 0, 16, 0, 16),
        (3, False, 0, 3, 0, 3),
    ],
)
def test_split_results(implementation, num_tokens, eagle, computed, num_new, hint, result):
    manager = make_manager(implementation, [full(4), mamba(4)], num_blocks=20)
    limits = implementation.SchedulerLimits(8192, 64, 8192)
    scheduler = implementation.Scheduler(manager, limits, 4, use_eagle=eagle)
    request = Prefixes(4).request("a", range(num_tokens))
    assert scheduler.mamba_block_aligned_split(request, computed, num_new, hint) == result


def test_a_chunk_that_the_split_reduces_to_nothing_stops_the_queue(implementation):
    """A budget of 3 tokens never reaches a boundary of 4 (n 3 -> 0)."""
    serving = align_serving(implementation, 4, 3)
    serving.add("a", 18)
    serving.add("b", 2)
    assert serving.steps(2) == [{}, {}]


def test_a_running_chunk_that_the_split_reduces_to_nothing_is_passed_over(implementation):
    """b is cut to 4 by the hint at admission and takes 8 of 10 later: 2 are less than a block."""
    serving = align_serving(implementation, 4, 10)
    serving.add("z", 9, shared=4, max_tokens=1)
    assert serving.steps(2) == [{"z": 8}, {"z": 1}]
    serving.add("b", 30, shared=4)
    serving.add("a", 30)
    serving.add("c", 2)
    assert serving.steps(2) == [{"b": 4, "a": 4, "c": 2}, {"b": 8, "c": 1}]


def test_a_shared_prefix_without_a_state_gets_a_checkpoint(implementation):
    """Hint 8: the full group knows 8 shared tokens, the recurrent group has a state at 16 only."""
    serving = align_serving(implementation, 4, 100)
    serving.add("a", 18, shared=8)
    serving.steps(2)
    serving.add("b", 18, shared=8)
    assert [step["b"] for step in serving.steps(3)] == [8, 8, 2]
    c = serving.add("c", 18, shared=8)
    serving.step()
    assert c.num_cached_tokens == 8


def test_a_state_made_in_this_step_stops_the_queue_for_one_step(implementation):
    serving = align_serving(implementation, 4, 100)
    serving.add("a", 8, shared=8)
    serving.add("b", 12, shared=8)
    assert serving.steps(2) == [{"a": 8}, {"a": 1, "b": 4}]


def repeat_and_sibling(implementation, *, block_size, budget, num_tokens, shared):
    """Serve a prompt, then one that shares its first tokens; return the second one's hit."""
    serving = align_serving(implementation, block_size, budget)
    serving.add("a", num_tokens, shared=shared, max_tokens=1)
    for _ in range(4):
        serving.step()
    assert len(serving.scheduler.running) == 0
    sibling = serving.add("b", num_tokens, shared=shared, max_tokens=1)
    serving.step()
    return sibling.num_cached_tokens


@pytest.mark.parametrize(("shared", "hit"), [(1600, 1584), (1500, 0)])
def test_states_in_unique_tokens_are_of_no_use(implementation, shared, hit):
    """B3: 2,200 tokens, blocks of 528, budget 2048: states at 1584 and 2112 only."""
    found = repeat_and_sibling(
        implementation, block_size=528, budget=2048, num_tokens=2200, shared=shared
    )
    assert found == hit


@pytest.mark.parametrize(("num_tokens", "hit"), [(500, 0), (552, 528), (979, 528)])
def test_a_repeated_prompt_hits_whole_blocks(implementation, num_tokens, hit):
    """B4, block 528: nothing below one block; 528 of 552 and 528 of 979."""
    found = repeat_and_sibling(
        implementation, block_size=528, budget=8192, num_tokens=num_tokens, shared=num_tokens
    )
    assert found == hit


@pytest.mark.parametrize(("shared", "hit"), [(2000, 0), (1616, 0), (3300, 3200)])
def test_one_state_per_chunk_end(implementation, shared, hit):
    """B7: 4,278 tokens in blocks of 1600 keep one state, at 3200."""
    found = repeat_and_sibling(
        implementation, block_size=1600, budget=16384, num_tokens=4278, shared=shared
    )
    assert found == hit


def test_no_hit_in_a_model_shorter_than_its_block(implementation):
    """B5: block 8320 and at most 4096 tokens."""
    serving = align_serving(implementation, 8320, 8320, max_model_len=4096)
    for name in "abc":
        request = serving.add(name, 4000, shared=4000, max_tokens=1)
        serving.step()
        assert request.status is RequestStatus.FINISHED_LENGTH_CAPPED
        assert request.num_cached_tokens == 0
    assert serving.manager.prefix_cache_stats.hits == 0


def test_alternating_long_chats_lose_their_state(implementation):
    """B6: the pool keeps the older chat's attention blocks longer than its one state."""
    serving = align_serving(implementation, 4, 1000, num_blocks=12)
    first = serving.add("a", 18, max_tokens=1)
    serving.steps(2)
    assert first.status.is_finished
    serving.add("b", 18, max_tokens=1)
    serving.steps(2)
    again = serving.prefixes.request("a2", [("a", i) for i in range(18)])
    rows, hit = serving.manager.get_computed_blocks(again)
    held = [serving.manager.block_pool.get_cached_block(i, [0]) for i in again.prefix_ids[:4]]
    assert hit == 0 and held[0] is not None
    assert [list(row) for row in rows] == [[], []]


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
