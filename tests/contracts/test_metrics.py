"""Every metric: nothing gives None or 0, one request and one step give hand values, docs agree."""

import json
import math
import re
from pathlib import Path

import pytest

from sim.metrics import METRICS, compute_metrics
from sim.metrics.memory import MEMORY_METRICS, fullest
from sim.metrics.request import REQUEST_METRICS
from sim.metrics.step import STEP_METRICS
from sim.tables import PARTS, REQUEST_COLUMNS, STEP_COLUMNS, WASTE_COLUMNS
from tests.unit.metrics.fakes import MS, make_tables, run_like_tables

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
COUNTS = {
    "requests_submitted",
    "requests_finished",
    "requests_aborted",
    "requests_rejected",
    "requests_stuck",
    "prompt_tokens",
    "generation_tokens",
    "cached_prompt_tokens",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "num_steps",
    "prefill_tokens_computed",
    "decode_tokens_computed",
    "vllm:num_preemptions",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
}


def test_no_name_is_taken_twice():
    assert len(METRICS) == len(REQUEST_METRICS) + len(STEP_METRICS) + len(MEMORY_METRICS)


def test_of_nothing_counts_are_zero_and_everything_else_is_none():
    metrics = compute_metrics(make_tables())
    assert {name for name, value in metrics.items() if value == 0} == COUNTS
    assert {name for name, value in metrics.items() if value is None} == set(METRICS) - COUNTS
    assert fullest(make_tables()) is None


REJECTED = {
    "request_id": "no",
    "outcome": "rejected",
    "reason": "too long",
    "first_scheduled_ns": None,
    "first_token_ns": None,
    "finish_ns": 0,
    "output_tokens": 0,
    "cached_tokens": None,
}


def test_a_run_whose_only_request_is_rejected_has_no_latency():
    metrics = compute_metrics(make_tables([REJECTED]))
    assert metrics["requests_rejected"] == metrics["requests_submitted"] == 1
    assert metrics["prompt_tokens"] == 0
    assert metrics["ttft_p50_s"] is metrics["prefix_hit_rate"] is metrics["utilisation"] is None


ONE = {
    "arrival_ns": 10 * MS,
    "first_scheduled_ns": 12 * MS,
    "first_token_ns": 30 * MS,
    "finish_ns": 60 * MS,
    "prompt_tokens": 100,
    "output_tokens": 4,
    "cached_tokens": 25,
    "preemptions": 1,
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("span_s", 0.050),  # from 10 ms to 60 ms
        ("drain_time_s", 0.050),  # the only arrival, at 10 ms, to 60 ms
        ("ttft_mean_s", 0.020),
        ("ttft_p99_s", 0.020),
        ("tpot_p50_s", 0.010),  # 30 ms for 3 tokens after the first
        ("e2e_p90_s", 0.050),
        ("queue_time_mean_s", 0.002),
        ("request_throughput", 1 / 0.050),
        ("output_throughput", 4 / 0.050),
        ("total_throughput", 104 / 0.050),
        ("prefix_hit_rate", 0.25),
        ("cached_prompt_tokens", 25),
        ("vllm:prefix_cache_queries", 300),
        ("vllm:prefix_cache_hits", 50),
        ("num_steps", 3),
        ("step_time_mean_s", 0.040 / 3),
        ("utilisation", 0.8),  # 10 + 20 + 10 of 50 ms
        ("prefill_tokens_computed", 75),
        ("decode_tokens_computed", 3),
        ("vllm:num_preemptions", 1),
        ("num_requests_running_mean", (1 * 10 + 2 * 20) / 50),  # steps of 10, 20, 10 of 50 ms
        ("num_requests_running_max", 2),
        ("num_requests_waiting_mean", 2 / 50),  # one request for 2 of 50 ms
        ("num_requests_waiting_max", 3),
        ("vllm:kv_cache_usage_perc_mean", (0.6 * 10 + 0.4 * 20) / 50),
        ("vllm:kv_cache_usage_perc_max", 0.6),
        ("vllm:spec_decode_num_draft_tokens", 12),
        ("vllm:spec_decode_num_accepted_tokens", 6),
        ("acceptance_length_mean", 2.5),  # 6 accepted in 4 verifications, and one token each
        ("held_blocks_max", 6),
        ("cached_free_blocks_max", 5),
        ("waste_share_live", (600 * 10 + 300 * 20) / 40 / 1000),
        ("waste_share_free", (300 * 10 + 600 * 20 + 900 * 10) / 40 / 1000),
        ("waste_share_tail", 0.0),
    ],
)
def test_one_request_in_three_steps_gives_the_values_by_hand(name, expected):
    steps = [
        {"start_ns": 15 * MS, "end_ns": 25 * MS, "prefill_tokens": 75, "num_running": 1,
         "num_waiting": 3, "free_blocks": 4, "held_blocks_g0": 2, "held_blocks_g1": 4},
        {"start_ns": 25 * MS, "end_ns": 45 * MS, "decode_tokens": 1, "num_running": 2,
         "preemptions": 1, "free_blocks": 6, "held_blocks_g0": 4},
        {"start_ns": 50 * MS, "end_ns": 60 * MS, "decode_tokens": 2, "free_blocks": 10,
         "cached_free_blocks": 5},
    ]  # fmt: skip
    waste = [
        {"time_ns": 15 * MS, "live": 600, "free": 300},
        {"time_ns": 25 * MS, "live": 300, "free": 600},
        {"time_ns": 50 * MS, "live": 0, "free": 900},
    ]
    tables = make_tables(
        [ONE],
        steps,
        waste,
        num_groups=2,
        prefix_cache_queries=300,
        prefix_cache_hits=50,
        spec_decode_num_drafts=4,
        spec_decode_num_draft_tokens=12,
        spec_decode_num_accepted_tokens=6,
    )
    assert METRICS[name].value(tables) == pytest.approx(expected, rel=1e-12)


def test_one_output_token_has_no_time_per_output_token():
    metrics = compute_metrics(make_tables([{**ONE, "output_tokens": 1}]))
    assert metrics["tpot_mean_s"] is None
    assert metrics["ttft_mean_s"] == 0.020


def test_an_aborted_request_counts_for_its_first_token_but_not_for_its_end():
    metrics = compute_metrics(make_tables([{**ONE, "outcome": "aborted"}]))
    assert metrics["ttft_mean_s"] == 0.020
    assert metrics["e2e_mean_s"] is metrics["tpot_mean_s"] is None


def test_hit_rate_leaves_out_requests_that_were_never_admitted():
    metrics = compute_metrics(make_tables([ONE, {**REJECTED, "prompt_tokens": 10**6}]))
    assert metrics["prefix_hit_rate"] == 0.25


def test_span_and_drain_do_not_depend_on_which_request_is_rejected():
    steps = [{"start_ns": 0, "end_ns": 200 * MS}]
    served = {**ONE, "arrival_ns": 0, "first_scheduled_ns": 0}
    late = {**REJECTED, "arrival_ns": 1000 * MS}
    metrics = compute_metrics(make_tables([served, late], steps))
    assert (metrics["span_s"], metrics["utilisation"], metrics["drain_time_s"]) == (1.0, 0.2, 0.0)
    early = {**REJECTED, "arrival_ns": 0}
    shifted = [{"start_ns": 800 * MS, "end_ns": 1000 * MS}]
    metrics = compute_metrics(
        make_tables([early, {**served, "arrival_ns": 800 * MS, "finish_ns": 1000 * MS}], shifted)
    )
    assert (metrics["span_s"], metrics["utilisation"], metrics["drain_time_s"]) == (1.0, 0.2, 0.2)


def test_backlog_that_is_never_served_has_no_drain_time():
    stuck = {**REJECTED, "outcome": "stuck", "finish_ns": None}
    steps = [{"start_ns": 0, "end_ns": 200 * MS}]
    assert compute_metrics(make_tables([ONE, stuck], steps))["drain_time_s"] is None


def test_fullest_is_the_sample_with_the_least_free():
    waste = [{"free": 5, "live": 95}, {"free": 2, "live": 98}, {"free": 2, "live": 97, "tail": 1}]
    parts = fullest(make_tables(waste=waste))
    assert parts == {**dict.fromkeys(PARTS, 0), "free": 2, "live": 98}


def test_values_are_plain_finite_json_numbers():
    metrics = compute_metrics(run_like_tables())
    assert all(type(v) in (int, float) and math.isfinite(v) for v in metrics.values())
    assert json.loads(json.dumps(metrics)) == metrics


def test_every_metric_has_unit_formula_and_one_line_in_the_docs():
    lines = re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.*?) ?\|$", DOCS.read_text(), re.M)
    documented = [line for line in lines if line[0] in METRICS]
    assert [name for name, *_ in documented] == list(METRICS)
    for name, unit, formula, vllm in documented:
        metric = METRICS[name]
        assert (unit, formula, vllm.strip("`")) == (metric.unit, metric.formula, metric.vllm)


def test_every_column_and_part_is_in_the_docs():
    text = DOCS.read_text()
    for name in (*REQUEST_COLUMNS, *STEP_COLUMNS, *WASTE_COLUMNS, "held_blocks_g0"):
        assert f"| `{name}` |" in text, name
