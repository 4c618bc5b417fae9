"""The step-time models in compiled form: equal nanoseconds, for every step that there can be."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.config import Plugin, Scenario, validated
from sim.hardware import load_hardware
from sim.latency import LATENCY_MODELS, build_step_time, build_step_time_state
from sim.latency.step_time_compiled import step_time
from sim.latency.work import StepWork
from sim.layout.plan import plan_layout
from sim.layout_scenario import layout_settings
from sim.models import load_model
from sim.profiles import PROFILES

MODELS = {
    "google--gemma-3-27b-it": {},
    "openai--gpt-oss-120b": {},
    "ai21labs--Jamba-v0.1": {},
    "Qwen--Qwen3-Next-80B-A3B-Instruct": {"mamba_cache_mode": "align"},
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": {},
}
LONGEST = 131_072
MAX_ROWS = 1024
BUDGET = 8192

CONTEXTS = st.one_of(
    st.integers(0, LONGEST - 1),
    st.integers(0, 4096),
    st.sampled_from([127, 128, 1022, 1023, 1024, 8191, 8192, 16384]),
)
DECODES = st.lists(CONTEXTS, max_size=20)
CHUNKS = st.lists(st.tuples(CONTEXTS, st.integers(1, 2000)), max_size=4)
ALL = pytest.mark.parametrize("name", list(LATENCY_MODELS))


@cache
def parts(model_name: str, latency: str, **params: float):
    """Return the plain function and the compiled state of one model."""
    cache_section = {"enable_prefix_caching": True, **MODELS[model_name]}
    given = {
        "model": model_name,
        "cache": {"kv_cache_memory_bytes": "400GiB", **cache_section},
        "scheduler": {"max_model_len": LONGEST, "max_num_batched_tokens": BUDGET},
    }
    scenario, model = validated(Scenario, given), load_model(model_name)
    layout = plan_layout(model, layout_settings(scenario, model), PROFILES["vllm-0.25.1"])
    plugin = Plugin(name=latency, params=params)
    made = (plugin, model, load_hardware("h100-80gb"), layout)
    return build_step_time(*made), build_step_time_state(*made)


def rows(decode, chunks):
    """Return the arguments of the compiled function: decode rows and chunks, mixed."""
    every = [(c, 1, 1) for c in decode] + [(first, count, 0) for first, count in chunks]
    every.sort(key=lambda row: row[0] * 7919 % 101)
    columns = np.array(every, np.int64).reshape(-1, 3).T
    return (*np.ascontiguousarray(columns), len(every))


def check(latency, model_name, decode, chunks, **params):
    plain, state = parts(model_name, latency, **params)
    found = step_time(state, *rows(decode, chunks))
    assert type(found) is int
    assert found == plain(StepWork(chunks, decode))


@ALL
@pytest.mark.parametrize("model_name", MODELS)
@given(decode=DECODES, chunks=CHUNKS)
@example(decode=[], chunks=[(0, BUDGET)])
@example(decode=[LONGEST - 1] * MAX_ROWS, chunks=[(LONGEST - 7168, 7168)])
@settings(max_examples=150, deadline=None)
def test_times_are_equal_for_random_batches(name, model_name, decode, chunks):
    check(name, model_name, decode, chunks)


@ALL
@pytest.mark.parametrize("model_name", MODELS)
def test_times_are_equal_for_full_batches(name, model_name):
    rng = np.random.default_rng([len(name), len(model_name)])
    for _ in range(300):
        decode = rng.integers(0, LONGEST, rng.integers(0, MAX_ROWS)).tolist()
        left = BUDGET - len(decode)
        chunks = []
        while left > 0 and len(chunks) < 3:
            count = int(rng.integers(1, left + 1))
            chunks.append((int(rng.integers(0, LONGEST - count)), count))
            left -= count
        check(name, model_name, decode, chunks)


@given(
    step_us=st.floats(0, 1e6),
    token_us=st.floats(0, 1e4),
    context_ns=st.floats(0, 1e4),
    decode=DECODES,
    chunks=CHUNKS,
)
@example(step_us=0.0005, token_us=0.0, context_ns=0.0, decode=[1], chunks=[])  # 50000.5 ns
@example(step_us=0.0015, token_us=0.0, context_ns=0.0, decode=[1], chunks=[])
@settings(max_examples=300, deadline=None)
def test_affine_costs_of_any_size_round_alike(step_us, token_us, context_ns, decode, chunks):
    params = {"step_us": step_us, "prefill_token_us": token_us, "context_token_ns": context_ns}
    check("affine", "google--gemma-3-27b-it", decode, chunks, **params)


def test_halves_are_rounded_to_even_and_a_step_takes_a_nanosecond():
    for twice, rounded in ((1, 1), (3, 2), (5, 2), (7, 4)):  # 0.5 becomes 0, so 1
        params = {"step_us": twice * 0.0005, "kv_group_us": 0.0, "decode_request_us": 0.0}
        _, state = parts("google--gemma-3-27b-it", "affine", **params, context_token_ns=0.0)
        assert step_time(state, *rows([3], [])) == rounded


def test_costs_whose_sums_might_leave_64_bits_have_no_compiled_form():
    assert parts("google--gemma-3-27b-it", "affine", context_token_ns=1e12)[1] is None
    assert parts("google--gemma-3-27b-it", "affine", context_token_ns=1e6)[1] is not None


def test_the_same_loops_run_uncompiled():
    """In a process of its own, as a decorator has decided by the time that a test can ask."""
    code = (
        "from tests.unit.latency.test_step_time_compiled import check, MODELS, LATENCY_MODELS\n"
        "for name in LATENCY_MODELS:\n"
        "    for model in MODELS:\n"
        "        check(name, model, [0, 1, 5000, 131071], [(0, 100), (3, 1), (4000, 4092)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
