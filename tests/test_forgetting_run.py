"""Whole runs that forget identities before every request give the bytes of runs that never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.prefix_ids import PrefixIds
from sim.scenario_file import load_scenario, scenario_from
from sim.simulation import simulate

# Pools that hold a few requests, so that what is cached comes and goes.
RUNS = {
    "sessions with windows": (
        "gemma_3_27b_multi_turn",
        {
            "workload.params.num_requests": 40,
            "cache.kv_cache_memory_bytes": "7GiB",
            "scheduler.max_model_len": 24000,
        },
    ),
    "tenants": (
        "ten_million",
        {
            "workload.params.num_requests": 400,
            "cache.kv_cache_memory_bytes": "256MiB",
            "scheduler.max_model_len": 3000,
        },
    ),
}
ENGINES = ["python", pytest.param("compiled", marks=pytest.mark.compiled)]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run with names forgotten always or never; return the files' bytes and how often it was."""

    def run(name: str, engine: str, *, is_due: bool, **more) -> tuple[dict[str, bytes], int]:
        calls: list[int] = []

        def forget(names, cached_ids):
            calls.append(len(names))
            original(names, cached_ids)

        original = PrefixIds.forget
        with monkeypatch.context() as patched:
            patched.setattr(PrefixIds, "is_due", property(lambda names: is_due))
            patched.setattr(PrefixIds, "forget", forget)
            file, flags = RUNS[name]
            flags = {**flags, "engine.core": engine, **more}
            result = simulate(scenario_from(flags, load_scenario(file)))
        return saved(result, tmp_path / f"{engine}-{is_due}"), len(calls)

    return run


def saved(result, folder: Path) -> dict[str, bytes]:
    result.save(folder, figures=False)
    files = [path for path in folder.iterdir() if path.name != "provenance.json"]
    return {path.name: path.read_bytes() for path in sorted(files)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_forgets_is_the_run_that_does_not(run, name, engine):
    never, no_calls = run(name, engine, is_due=False)
    always, calls = run(name, engine, is_due=True)
    assert (no_calls, calls > 30) == (0, True)
    assert always == never
    assert "requests.parquet" in never


@pytest.mark.parametrize(
    "more", [{"engine.reasons": True}, {"engine.kv_events": "jsonl"}], ids=["reasons", "events"]
)
def test_names_that_are_written_out_are_never_forgotten(run, more):
    _, calls = run("tenants", "python", is_due=True, **more)
    assert calls == 0
