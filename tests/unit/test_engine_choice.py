"""Which engine runs a scenario, and that the choice leaves no trace in what is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import engine_choice
from sim.config import Scenario, validated
from sim.core.eviction import EVICTION_POLICIES
from sim.errors import ConfigError
from sim.latency import LATENCY_MODELS
from sim.results import run_id
from sim.scenario_file import parse_yaml, scenario_from, scenario_yaml
from sim.simulation import assemble

GEMMA, LLAMA, QWEN = (
    "google/gemma-3-27b-it",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
)


def made(core="compiled", model=GEMMA, **sections):
    engine = {"core": core, **sections.pop("engine", {})}
    return assemble(validated(Scenario, {"model": model, "engine": engine, **sections}))


@pytest.mark.parametrize(
    ("model", "sections"),
    [
        (GEMMA, {}),
        (QWEN, {"cache": {"enable_prefix_caching": True, "mamba_cache_mode": "align"}}),
        (
            "meta-llama/Llama-4-Scout-17B-16E-Instruct",
            {"cache": {"kv_cache_memory_bytes": "600GiB"}},
        ),
        ("deepseek-ai/DeepSeek-V3", {"cache": {"kv_cache_memory_bytes": "600GiB"}}),
        (LLAMA, {"scheduler": {"policy": "priority", "async_scheduling": False}}),
        (LLAMA, {"latency": {"name": "constant"}}),
        (LLAMA, {"cache": {"enable_prefix_caching": False}}),
    ],
)
def test_compiled_engine_runs_what_it_covers(model, sections):
    assembly = made(model=model, **sections)
    assert assembly.step_time is not None
    assert assembly.fallback is None


SPECULATION = {"speculative_method": "ngram", "num_speculative_tokens": 2}
REFUSED = [
    ({"engine": {"reasons": True}}, "it has no engine.reasons"),
    ({"engine": {"kv_events": "jsonl"}}, "it has no engine.kv_events"),
    ({"engine": {"check_every": 5}}, "it has no engine.check_every"),
    ({"cache": {"kv_cache_metrics": True}}, "it has no cache.kv_cache_metrics"),
    ({"scheduler": {"max_loras": 1}}, "it has no scheduler.max_loras"),
    ({"speculative": SPECULATION}, "it has no speculative decoding"),
    ({"compat": "fixed"}, "it has no compat: its rules are vLLM's as they are"),
    ({"model": "openai/whisper-large-v3", "latency": {"name": "constant"}},
     "it has no CrossAttentionSpec layers"),
    ({"latency": {"name": "affine", "params": {"context_token_ns": 1e12}}},
     "the step-time model affine has no compiled form for this layout"),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "reason"), REFUSED)
def test_what_it_does_not_cover_is_an_error_if_it_is_asked_for(sections, reason):
    with pytest.raises(ConfigError) as caught:
        made(**sections)
    assert str(caught.value) == f"engine.core: compiled: auto or python: {reason}"


@pytest.mark.parametrize(("sections", "reason"), REFUSED)
def test_what_it_does_not_cover_runs_on_the_python_engine_otherwise(monkeypatch, sections, reason):
    monkeypatch.setattr(engine_choice, "_of_the_installation", lambda is_asked_for: iter(()))
    assembly = made("auto", **sections)
    assert (assembly.step_time, assembly.fallback) == (None, reason)
    assert made("python", **sections).fallback is None


def test_missing_numba_is_a_reason_and_a_way_out(monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.setattr(engine_choice.importlib.util, "find_spec", lambda name: None)
    (reason, *_) = engine_choice._of_the_installation(False)
    assert reason == "Numba is not installed (pip install 'hybrid-kv-sim[fast]')"
    with pytest.raises(ConfigError, match="auto or python: Numba is not"):
        made()


def test_switched_off_compiler_is_for_those_who_ask_for_the_loops(monkeypatch):
    monkeypatch.setattr(engine_choice.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert made().step_time is not None
    assert made("auto").fallback == "NUMBA_DISABLE_JIT is set"


def test_plug_ins_of_ones_own_without_a_compiled_half_run_on_the_python_engine(monkeypatch):
    plain = replace(LATENCY_MODELS["constant"], name="plain", compiled=None)
    monkeypatch.setattr(LATENCY_MODELS, "_entries", {"plain": plain})
    with pytest.raises(ConfigError, match="the step-time model plain has no compiled form"):
        made(latency={"name": "plain"})
    monkeypatch.undo()
    queues = {**EVICTION_POLICIES, "other": EVICTION_POLICIES["lru"]}
    monkeypatch.setattr(EVICTION_POLICIES, "_entries", queues)
    with pytest.raises(ConfigError, match="free_queue other"):
        made(engine={"free_queue": "other"})


def test_observers_are_refused_with_the_engine_that_has_none():
    from sim.observer import Observer
    from sim.simulation import simulate

    scenario = scenario_from({"model": LLAMA, "engine.core": "compiled"})
    with pytest.raises(ConfigError, match="it has no observers"):
        simulate(scenario, observer=Observer())


def test_choice_is_in_no_name_and_in_no_file():
    scenarios = [scenario_from({"model": LLAMA, "engine.core": c}) for c in ("python", "compiled")]
    texts = {scenario_yaml(scenario) for scenario in scenarios}
    assert len({run_id(scenario, {}) for scenario in scenarios}) == len(texts) == 1
    assert "core" not in parse_yaml(texts.pop(), "f")["engine"]


def test_unknown_engine_suggests_one():
    with pytest.raises(ConfigError, match="did you mean compiled"):
        scenario_from({"model": LLAMA, "engine.core": "compild"})
