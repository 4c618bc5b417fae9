"""Little's law: numbers from the step table equal times from the request table."""

from __future__ import annotations

import pytest

from sim.config import Scenario, validated
from sim.metrics.request import span_s
from sim.simulation import simulate
from sim.units import NS_PER_S


@pytest.mark.parametrize(
    "arrival",
    [
        {"kind": "poisson", "rate_per_s": 6.0},
        {"kind": "closed", "concurrency": 12, "think_time_s": 0.3},
    ],
    ids=["open", "closed"],
)
def test_mean_running_requests_equal_time_in_the_engine_over_the_span(arrival):
    data = {
        "model": "meta-llama--Llama-3.1-8B",
        "workload": {
            "name": "shared_prefix",
            "params": {"num_requests": 150, "arrival": arrival},
        },
    }
    result = simulate(validated(Scenario, data))
    requests, span = result.requests, span_s(result.tables)
    in_engine_s = (requests["finish_ns"] - requests["first_scheduled_ns"]).sum() / NS_PER_S
    waiting_s = (requests["first_scheduled_ns"] - requests["arrival_ns"]).sum() / NS_PER_S
    assert result.metrics["vllm:num_preemptions"] == 0
    # Exact up to floating point: a request runs in each step from its first to its last.
    assert result.metrics["num_requests_running_mean"] == pytest.approx(in_engine_s / span)
    assert result.metrics["num_requests_waiting_mean"] == pytest.approx(waiting_s / span)
    assert result.metrics["num_requests_running_mean"] > 1


def test_requests_of_one_token_are_seen_while_their_only_step_runs():
    data = {
        "model": "meta-llama--Llama-3.1-8B",
        "latency": {"name": "constant"},
        "workload": {
            "name": "shared_prefix",
            "params": {
                "num_requests": 40,
                "output": {"mean": 1.0, "cv": 0.0, "maximum": 1},
                "arrival": {"kind": "closed", "concurrency": 4, "think_time_s": 0.0},
            },
        },
    }
    result = simulate(validated(Scenario, data))
    assert set(result.requests["output_tokens"]) == {1}
    # Four clients without think time: four requests in each step.
    assert result.metrics["num_requests_running_max"] == 4
    assert result.metrics["held_blocks_max"] > 0
