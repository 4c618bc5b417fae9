"""Event files and residency of whole runs, as a user asks for them."""

from __future__ import annotations

import json

import pytest

from sim.config import Scenario, validated
from sim.event_files import read_kv_events
from sim.results import RunResult
from sim.simulation import simulate
from sim.verification import differences

pytestmark = pytest.mark.slow


def scenario(seed=0, cache=None, **engine):
    data = {
        "model": "google--gemma-3-1b-it",
        "cache": {"kv_cache_memory_bytes": "300MiB", **(cache or {})},
        "scheduler": {"max_model_len": 16_384},
        "engine": engine,
        "seed": seed,
        "workload": {"name": "multi_turn", "params": {"num_requests": 24}},
    }
    return validated(Scenario, data)


@pytest.mark.parametrize("file_format", ["jsonl", "msgpack"])
def test_equal_runs_leave_equal_files_and_a_loaded_result_keeps_them(file_format, tmp_path):
    name = f"kv_events.{file_format}"
    for place in ("a", "b"):
        simulate(scenario(kv_events=file_format)).save(tmp_path / place, figures=False)
    first = (tmp_path / "a" / name).read_bytes()
    assert first == (tmp_path / "b" / name).read_bytes()
    loaded = RunResult.load(tmp_path / "a")
    assert name in loaded.save(tmp_path / "c", figures=False)
    assert (tmp_path / "c" / name).read_bytes() == first
    loaded.save(tmp_path / "a", figures=False)
    assert (tmp_path / "a" / name).read_bytes() == first


def test_verification_compares_the_files_too(tmp_path):
    new = simulate(scenario(kv_events="jsonl"))
    new.save(tmp_path / "run", figures=False)
    stored = RunResult.load(tmp_path / "run")
    assert differences(stored, new) == []
    path = tmp_path / "run" / "kv_events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"medium":"GPU"', b'"medium":"CPU"', 1))
    assert differences(stored, new) == ["kv_events.jsonl"]


def test_both_formats_hold_the_same_batches(tmp_path):
    batches = []
    for file_format in ("jsonl", "msgpack"):
        simulate(scenario(kv_events=file_format)).save(tmp_path / file_format, figures=False)
        path = tmp_path / file_format / f"kv_events.{file_format}"
        batches.append(list(read_kv_events(path)))
    assert batches[0] == batches[1]
    assert len(batches[0]) > 20


def test_recording_changes_no_decision():
    plain = simulate(scenario())
    recorded = simulate(
        scenario(
            cache={"kv_cache_metrics": True, "kv_cache_metrics_sample": 0.5},
            kv_events="msgpack",
            kv_events_hash="sha256_cbor",
        )
    )
    for name in ("requests", "steps", "waste"):
        assert getattr(plain, name).equals(getattr(recorded, name))
    assert "kv_cache_metrics" not in plain.summary()


def test_no_file_without_the_option(tmp_path):
    files = simulate(scenario()).save(tmp_path / "run", figures=False)
    assert not [name for name in files if name.startswith("kv_events")]


def test_residency_is_in_the_summary_and_follows_the_seed(tmp_path):
    cache = {"kv_cache_metrics": True, "kv_cache_metrics_sample": 0.2}
    summaries = [simulate(scenario(0, cache)).summary()["kv_cache_metrics"] for _ in range(2)]
    assert summaries[0] == summaries[1]
    whole = {"kv_cache_metrics": True, "kv_cache_metrics_sample": 1.0}
    result = simulate(scenario(0, whole))
    every = result.summary()["kv_cache_metrics"]
    # A share of 0.2 of n blocks, within 5 standard deviations.
    n = every["sampled_blocks"]
    assert abs(summaries[0]["sampled_blocks"] - 0.2 * n) < 5 * (0.2 * 0.8 * n) ** 0.5
    assert every["vllm:kv_block_lifetime_seconds"]["count"] > 100
    result.save(tmp_path / "run", figures=False)
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stored["kv_cache_metrics"] == every
    assert differences(RunResult.load(tmp_path / "run"), result) == []
