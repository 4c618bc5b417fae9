from types import SimpleNamespace

import numpy as np
import pytest

from sim.errors import InvariantError
from sim.latency.work import StepWork
from sim.records import Recorder
from sim.request import Request
from sim.tables import PARTS
from tests.unit.latency.fakes import FULL, make_layout
from tests.unit.metrics.slow_waste import FakeManager, make_group, make_manager, make_pool


def make_recorder(*, num_groups=2, waste_samples=4, **settings):
    """A recorder for groups of one full layer each: 10 blocks of 16 slots x 32 B = 512 B."""
    layout = make_layout(*[(FULL, 1)] * num_groups)
    layout.bytes_per_block = 512
    layout.waste = {"kv_memory_bytes": 5200}
    return Recorder(layout, waste_samples, **settings)


def make_state(*, held=(), num_groups=2):
    """A scheduler and a manager in which request "a" holds ``held`` in group 0."""
    group = make_group(block_size=16, slot_bytes=32)
    managers = [FakeManager(group) for _ in range(num_groups)]
    managers[0].req_to_blocks["a"] = list(held)
    pool = make_pool(10, held, num_groups=num_groups)
    pool.held_by_group = [len(held), *[0] * (num_groups - 1)]
    manager = make_manager(managers, pool)
    manager.prefix_cache_stats = SimpleNamespace(queries=70, hits=30)
    requests = {"a": SimpleNamespace(num_computed_tokens=20)}
    scheduler = SimpleNamespace(
        running=["a"], waiting=["b"], skipped_waiting=["c"], requests=requests
    )
    return scheduler, manager


def test_a_step_becomes_a_row():
    recorder = make_recorder()
    scheduler, manager = make_state(held=[3, 4])
    work = StepWork(prefill=[(0, 5), (7, 2)], decode=[9, 9, 9])
    recorder.step(100, 250, work, scheduler, manager, 1)
    steps = recorder.tables(manager).steps
    assert set(steps.dtypes.astype(str)) == {"int64"}
    assert steps.to_dict("records") == [
        {
            "step": 0,
            "start_ns": 100,
            "end_ns": 250,
            "prefill_tokens": 7,
            "decode_tokens": 3,
            "num_running": 1,
            "num_waiting": 2,
            "preemptions": 1,
            "free_blocks": 7,
            "cached_free_blocks": 0,
            "held_blocks_g0": 2,
            "held_blocks_g1": 0,
        }
    ]


def test_a_sampled_step_carries_the_partition_of_the_memory():
    recorder = make_recorder()
    scheduler, manager = make_state(held=[3, 4])
    recorder.step(100, 250, StepWork([], [1]), scheduler, manager, 0)
    (row,) = recorder.tables(manager).waste.to_dict("records")
    # 20 of 32 slots of 32 B are computed; 7 blocks are free; 5200 - 10 x 512 bytes fill no block.
    expected = {"live": 640, "tail": 384, "free": 7 * 512, "null_block": 512, "remainder": 80}
    assert row == {"step": 0, "time_ns": 100, **dict.fromkeys(PARTS, 0), **expected}
    assert sum(expected.values()) == 5200


def test_samples_are_bounded_and_evenly_spaced():
    recorder = make_recorder(waste_samples=4)
    scheduler, manager = make_state()
    for step in range(20):
        recorder.step(step, step + 1, StepWork([], [1]), scheduler, manager, 0)
    tables = recorder.tables(manager)
    assert tables.waste["step"].tolist() == [0, 8, 16]
    assert tables.steps["step"].tolist() == list(range(20))


def test_a_finished_request_becomes_a_row_with_its_times():
    request = Request(
        "s.1", num_prompt_tokens=50, max_tokens=3, arrival_ns=7, session_id="s", tags=("x", "y")
    )
    request.num_tokens = 53
    request.num_cached_tokens, request.num_preemptions = 16, 2
    request.first_scheduled_ns, request.first_token_ns, request.finish_ns = 8, 20, 40
    recorder = make_recorder()
    recorder.request_done(request, "finished", None)
    (row,) = recorder.tables(make_state()[1]).requests.to_dict("records")
    assert row.pop("reason") is not row["outcome"]
    assert row == {
        "request_id": "s.1",
        "session_id": "s",
        "tags": "x,y",
        "arrival_ns": 7,
        "first_scheduled_ns": 8,
        "first_token_ns": 20,
        "finish_ns": 40,
        "prompt_tokens": 50,
        "output_tokens": 3,
        "cached_tokens": 16,
        "preemptions": 2,
        "outcome": "finished",
    }


def test_moments_that_never_came_are_missing():
    recorder = make_recorder()
    recorder.request_done(Request("r", 50, 3, arrival_ns=7), "rejected", "never fits")
    frame = recorder.tables(make_state()[1]).requests
    missing = [name for name in frame.columns if frame[name].isna()[0]]
    assert missing == [
        "session_id",
        "tags",
        "first_scheduled_ns",
        "first_token_ns",
        "finish_ns",
        "cached_tokens",
    ]
    assert frame["reason"][0] == "never fits"


def test_requests_are_ordered_by_arrival_and_then_by_their_end():
    recorder = make_recorder()
    for name, arrival in [("c", 5), ("a", 9), ("b", 5), ("d", 1)]:
        recorder.request_done(Request(name, 1, 1, arrival_ns=arrival), "aborted", None)
    assert recorder.tables(make_state()[1]).requests["request_id"].tolist() == ["d", "c", "b", "a"]


def test_counters_and_sizes_come_along():
    tables = make_recorder().tables(make_state()[1])
    assert (tables.prefix_cache_queries, tables.prefix_cache_hits) == (70, 30)
    assert (tables.num_blocks, tables.kv_memory_bytes) == (10, 5200)
    assert (len(tables.steps), len(tables.requests), len(tables.waste)) == (0, 0, 0)


def test_an_unknown_outcome_is_refused():
    with pytest.raises(ValueError, match="outcome is 'lost'"):
        make_recorder().request_done(Request("r", 1, 1), "lost", None)


def rows_of(first, last):
    rows = np.arange(12 * (last - first)).reshape(-1, 12)
    rows[:, 0] = np.arange(first, last)
    return rows


def test_blocks_of_steps_and_single_steps_are_one_table():
    recorder = make_recorder()
    scheduler, manager = make_state()
    recorder.steps(rows_of(0, 3))
    recorder.step(7, 8, StepWork([], [1]), scheduler, manager, 0)
    recorder.steps(rows_of(4, 6))
    steps = recorder.tables(manager).steps
    assert recorder.num_steps == len(steps) == 6
    assert steps["step"].tolist() == list(range(6))
    assert steps.iloc[2].tolist() == rows_of(0, 3)[2].tolist()


def test_a_block_that_leaves_out_a_step_is_a_broken_invariant():
    recorder = make_recorder()
    with pytest.raises(InvariantError, match="step 1 follows after 0 steps"):
        recorder.steps(rows_of(1, 3))


def test_a_sample_comes_from_the_step_that_is_due():
    recorder = make_recorder()
    recorder.waste_row(0, 100, range(10))
    assert recorder.next_sample == 1
    assert recorder.tables(make_state()[1]).waste.iloc[0].tolist() == [0, 100, *range(10)]
    recorder.waste_row(1, 200, range(10))
    recorder.waste_row(2, 200, range(10))
    recorder.waste_row(3, 200, range(10))
    with pytest.raises(InvariantError, match="step 5 was sampled, due is step 4"):
        recorder.waste_row(5, 300, range(10))


def test_requests_leave_in_order_when_arrivals_are_told():
    recorder = make_recorder(row_group_rows=2)
    for arrival in [1, 5, 5, 9]:
        recorder.request_added(arrival)
    for name, arrival in [("c", 5), ("a", 9), ("b", 5), ("d", 1)]:
        recorder.request_done(Request(name, 1, 1, arrival_ns=arrival), "aborted", None)
    assert recorder.tables(make_state()[1]).requests["request_id"].tolist() == ["d", "c", "b", "a"]
