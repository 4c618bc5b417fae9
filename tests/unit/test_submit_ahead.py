"""A core that is told of requests before they arrive gives the history of one that is not."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import simpy

from sim import engine
from sim.request import OpenLoop, RequestSpec, Span
from sim.scenario_file import scenario_from
from sim.simulation import simulate
from workloads.arrivals import submitted

GEMMA = {"model": "google/gemma-3-1b-it", "cache.kv_cache_memory_bytes": "64MiB"}
SHORT = {"scheduler.max_model_len": 2048, "latency.name": "constant"}
LINES = [(0, 700, 3), (0, 300, 40), (0, 900, 1), (1, 900, 9), (60_000, 512, 2), (60_000, 40, 30)]


@pytest.fixture
def trace(tmp_path):
    """Requests that come together, next to each other, and after the engine was idle."""
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": t, "input_length": n, "output_length": m, "hash_ids": list(range(n // 512))}
        for t, n, m in LINES + [(60_001 + 7 * i, 100 + 50 * (i % 9), 5) for i in range(40)]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(core: str, trace: str):
    workload = {"workload.name": "mooncake", "workload.params": {"path": trace}}
    return simulate(scenario_from({**GEMMA, **SHORT, **workload, "engine.core": core}))


@pytest.mark.parametrize("ahead", [1, 2, 5, 256])
def test_how_far_ahead_changes_nothing(ahead, trace, monkeypatch):
    monkeypatch.setattr(engine, "_AHEAD", ahead)
    expected, found = run("python", trace), run("compiled", trace)
    assert len(found.requests) == len(LINES) + 40
    pd.testing.assert_frame_equal(found.requests, expected.requests)
    pd.testing.assert_frame_equal(found.steps, expected.steps)
    assert found.metrics == expected.metrics


def specs():
    for number in range(3):
        yield 10 * number, RequestSpec(f"r{number}", (Span("a", 0, 4),), Span("b", 0, 1))


def test_an_open_loop_is_a_process_where_nobody_takes_it_apart():
    env, seen = simpy.Environment(), []
    loop = submitted(env, specs(), lambda spec: seen.append((env.now, spec.request_id)))
    assert isinstance(loop, OpenLoop)
    env.process(loop)
    env.run()
    assert seen == [(0, "r0"), (10, "r1"), (20, "r2")]
