"""Imbalance and promises by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from sim.cluster.numbers import imbalance, promises, totals
from sim.units import NS_PER_S


def requests(*rows) -> pd.DataFrame:
    """Rows of replica, arrival, first scheduled, first token, finish [s], prompt, cached."""
    columns = ("replica", "arrival_ns", "first_scheduled_ns", "first_token_ns", "finish_ns")
    frame = pd.DataFrame(
        [[row[0], *(None if t is None else round(t * NS_PER_S) for t in row[1:5])] for row in rows],
        columns=columns,
    ).astype(dict.fromkeys(columns[2:], "Int64"))
    frame["prompt_tokens"] = [row[5] for row in rows]
    frame["cached_tokens"] = pd.array([row[6] for row in rows], dtype="Int64")
    frame["output_tokens"], frame["preemptions"] = 10, 0
    frame["outcome"] = ["finished" if row[4] is not None else "stuck" for row in rows]
    return frame


def replicas(*prefill, end_s: float):
    steps = pd.DataFrame({"end_ns": [round(end_s * NS_PER_S)]})
    return [
        SimpleNamespace(steps=steps, metrics={"prefill_tokens_computed": tokens})
        for tokens in prefill
    ]


ROWS = ((0, 0, 0, 1, 4, 100, 0), (0, 0, 0, 1, 2, 100, 64), (1, 2, 2, 3, 4, 100, 16))


def test_running_requests_are_weighed_by_time():
    """Replica 0 runs 2, 2, 1, 1 requests in four seconds, replica 1 runs 0, 0, 1, 1."""
    found = imbalance(requests(*ROWS), replicas(300, 100, end_s=4))
    # Means 1 for 4 s; fullest 2, 2, 1, 1; variances 1, 1, 0, 0.
    assert found["running_max_over_mean"] == pytest.approx(1.5)
    assert found["running_cv"] == pytest.approx(0.5**0.5)
    assert found["prefill_tokens_max_over_mean"] == 1.5
    assert found["prefill_tokens_cv"] == 0.5


def test_equal_replicas_are_balanced():
    rows = ((0, 0, 0, 1, 4, 100, 0), (1, 0, 0, 1, 4, 100, 0))
    found = imbalance(requests(*rows), replicas(7, 7, end_s=4))
    assert set(found.values()) == {0.0, 1.0}


def test_a_stuck_request_runs_to_the_end():
    rows = ((0, 0, 0, 1, None, 100, 0), (1, 0, 0, 1, 2, 100, 0))
    found = imbalance(requests(*rows), replicas(1, 1, end_s=4))
    assert found["running_max_over_mean"] == pytest.approx(4 / 3)


def test_nothing_to_compare_is_none():
    found = imbalance(requests(*ROWS).head(0), replicas(0, 0, end_s=4))
    assert set(found.values()) == {None}
    assert totals(requests(*ROWS).head(0), replicas(0, 0, end_s=4))["prefix_hit_rate"] is None


def test_totals_are_those_of_all_requests():
    found = totals(requests(*ROWS), replicas(300, 100, end_s=4))
    assert found["prefix_hit_rate"] == pytest.approx(80 / 300)
    assert found["request_throughput"] == 3 / 4
    assert (found["ttft_p50_s"], found["e2e_p99_s"]) == (1.0, 4.0)
    assert found["prefill_tokens_computed"] == 400


def test_promises_are_compared_request_by_request():
    frame = requests(*ROWS).assign(expected_tokens=[16, 64, 0])
    assert promises(frame) == {
        "expected_tokens": 80,
        "found_tokens": 80,
        "broken_promises_tokens": 16,
        "unexpected_tokens": 16,
    }
