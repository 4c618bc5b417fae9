"""Chunks and hits in align mode. Source: spec/manager.md 6.8; spec/real_cases.md B3 to B7."""

from __future__ import annotations

import pytest

from sim.request import RequestStatus
from tests.helpers import Prefixes, full, make_manager, mamba
from tests.unit.scheduler.serving import Serving


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
