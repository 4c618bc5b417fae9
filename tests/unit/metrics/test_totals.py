"""Metrics from a pass over row groups against the formulas: the same bits, whatever the groups."""

import random

import numpy as np
import pytest

from sim.metrics import METRICS, compute_metrics
from sim.metrics.metric import Statistics, exact_dot, to_seconds
from sim.metrics.run_tables import RunTables
from sim.tables import (
    PARTS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    WASTE_COLUMNS,
    MemoryTable,
    integer_frame,
    request_frame,
    step_columns,
)
from tests.unit.metrics.slow_metrics import slow_metrics

OF_COUNTERS = {
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "acceptance_length_mean",
}


def any_request(rng, number, longest_ns):
    moments = sorted(rng.randrange(1, longest_ns) for _ in range(4))
    row = dict.fromkeys(REQUEST_COLUMNS)
    row |= {"request_id": f"r{number}", "prompt_tokens": rng.randrange(1, 99_999)}
    row |= {"preemptions": rng.randrange(3), "output_tokens": rng.randrange(4)}
    row |= {"arrival_ns": moments[0], "outcome": rng.choice(["rejected", "stuck", "aborted"])}
    if rng.random() < 0.7:
        row |= {"first_scheduled_ns": moments[1], "cached_tokens": rng.randrange(99)}
    if rng.random() < 0.7:
        row |= {"finish_ns": moments[3]}
    if rng.random() < 0.5:
        row |= {"first_scheduled_ns": moments[1], "first_token_ns": moments[2]}
        row |= {"finish_ns": moments[3], "outcome": "finished", "cached_tokens": 0}
    return row


def any_steps(rng, number, longest_ns):
    times = sorted(rng.randrange(longest_ns) for _ in range(2 * number))
    return [
        {
            **{name: rng.randrange(10 ** rng.randrange(1, 7)) for name in step_columns(2)},
            "step": n,
            "start_ns": times[2 * n],
            "end_ns": times[2 * n + 1],
        }
        for n in range(number)
    ]


def any_waste(rng, num_steps):
    steps = range(0, num_steps, rng.randrange(1, 9))
    return [{**{p: rng.randrange(2**36) for p in PARTS}, "step": n, "time_ns": n} for n in steps]


def tables_of(requests, steps, waste, row_group_rows, **sizes):
    frames = (
        request_frame([tuple(row.values()) for row in requests]),
        integer_frame([tuple(row.values()) for row in steps], step_columns(2)),
        integer_frame([[row[n] for n in WASTE_COLUMNS] for row in waste], WASTE_COLUMNS),
    )
    tables = RunTables.of_frames(*frames, **sizes)
    for table in (tables.request_table, tables.step_table):
        assert isinstance(table, MemoryTable)
        table.row_group_rows = row_group_rows
    return tables


@pytest.mark.parametrize("seed", range(60))
def test_every_metric_is_the_formula_to_the_last_bit(seed):
    rng = random.Random(seed)
    longest_ns = rng.choice([50, 10**9, 10**13, 2**62])
    requests = [any_request(rng, n, longest_ns) for n in range(rng.choice([0, 1, 7, 60]))]
    steps = any_steps(rng, rng.choice([0, 1, 9, 80]), longest_ns)
    waste = any_waste(rng, len(steps))
    sizes = {"num_blocks": 10**6 + 1, "kv_memory_bytes": 2**36 + 1}
    values = compute_metrics(tables_of(requests, steps, waste, rng.choice([1, 4, 10**5]), **sizes))
    expected = slow_metrics(requests, steps, waste, **sizes)
    assert set(expected) == set(METRICS) - OF_COUNTERS
    assert {name: values[name] for name in expected} == expected
    assert all(type(values[name]) is type(expected[name]) for name in expected)


def test_one_pass_serves_all_metrics():
    rng = random.Random(1)
    tables = tables_of([any_request(rng, 0, 100)], any_steps(rng, 5, 100), [], 2,
                       num_blocks=9, kv_memory_bytes=9)  # fmt: skip
    passes = []
    read = tables.step_table.rows
    tables.step_table.rows = lambda columns: passes.append(columns) or read(columns)
    compute_metrics(tables)
    assert len(passes) == 1
    assert set(STEP_COLUMNS) - {"step", "preemptions"} < set(passes[0])


@pytest.mark.parametrize("seed", range(20))
def test_dot_is_exact_beyond_64_bits(seed):
    rng = random.Random(seed)
    large = 2 ** rng.choice([5, 30, 45, 62])
    values, weights = ([rng.randrange(-large, large) for _ in range(50)] for _ in range(2))
    expected = sum(v * w for v, w in zip(values, weights, strict=True))
    assert exact_dot(np.array(values), np.array(weights)) == expected


@pytest.mark.parametrize("longest", [10, 2**53 - 1, 2**53 + 1, 2**62])
def test_seconds_are_rounded_once(longest):
    rng = random.Random(longest)
    spans = [rng.randrange(longest) for _ in range(200)] + [longest]
    assert to_seconds(np.array(spans)).tolist() == [span / 10**9 for span in spans]


def test_the_mean_does_not_depend_on_the_order():
    rng = random.Random(3)
    values = [10 ** rng.uniform(-9, 9) for _ in range(1000)]
    means = {Statistics.of(np.array(rng.sample(values, 1000))).mean for _ in range(5)}
    assert len(means) == 1
