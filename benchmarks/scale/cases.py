"""The models and the trace of the comparison: the same scenario for every engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import simpy

import workloads
from sim.config import Scenario, validated
from sim.request import RequestSpec
from sim.simulation import WORKLOADS

_ALIGN = {"enable_prefix_caching": True, "mamba_cache_mode": "align"}
MODELS: dict[str, dict[str, Any]] = {
    "google--gemma-3-27b-it": {},
    "meta-llama--Llama-3.1-8B": {},
    "openai--gpt-oss-120b": {},
    "ai21labs--Jamba-v0.1": {"cache": _ALIGN},
    "Qwen--Qwen3-Next-80B-A3B-Instruct": {"cache": _ALIGN},
    # Its own length, 10 M tokens, does not fit 60 GiB; the trace's longest request does.
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": {"scheduler": {"max_model_len": 131072}},
}
"""What each model's scenario says beside the defaults: 60 GiB, steps of at most 8192 tokens."""


def scenario(
    model: str,
    trace: str,
    num_requests: int | None = None,
    arrival_scale: float = 1.0,
    core: str = "auto",
) -> Scenario:
    """Return the scenario of the first requests of a Mooncake trace, None for all of them."""
    params = {
        "path": trace,
        "max_requests": num_requests,
        "arrival": {"arrival_scale": arrival_scale},
    }
    data = {
        "model": model,
        "workload": {"name": "mooncake", "params": params},
        "engine": {"core": core} if core != "auto" else {},
        **MODELS[model],
    }
    return validated(Scenario, data)


def requests(of: Scenario, count: int) -> list[RequestSpec]:
    """Return the first requests that the workload of a scenario submits, in its order."""
    return list(islice(_submitted(of), count))


def _submitted(of: Scenario) -> Iterator[RequestSpec]:
    """Run the workload without an engine: nothing ever ends, so it must not wait for ends."""
    workload = WORKLOADS[of.workload.name]
    params = validated(workload.params, of.workload.params, "workload.params")
    env, specs = simpy.Environment(initial_time=0), []
    env.process(workload.process(env, specs.append, workloads.Streams(of.seed), params))
    while env.peek() != float("inf"):
        env.step()
        yield from specs
        specs.clear()
