"""Small scenarios with a cluster, and a way to look at a run while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

from sim.cluster.config import ClusterScenario, with_cluster
from sim.cluster.router import Arrival, IndexSettings, Load, Router, RouterEntry
from sim.cluster.routers import ROUTERS
from sim.cluster.simulation import _Cluster, assemble_cluster
from sim.config import Scenario, Strict, validated
from sim.progress import NullProgress
from sim.request import RequestSpec, Span

LLAMA = {"model": "meta-llama--Llama-3.1-8B", "cache": {"kv_cache_memory_bytes": "4GiB"}}
GEMMA = {
    "model": "google--gemma-3-1b-it",
    "cache": {"kv_cache_memory_bytes": "320MiB"},
    "latency": {"name": "constant", "params": {"step_ms": 20.0}},
}
JAMBA = {
    "model": "ai21labs--Jamba-v0.1",
    "cache": {
        "kv_cache_memory_bytes": "4GiB",
        "enable_prefix_caching": True,
        "mamba_cache_mode": "align",
    },
}
CHUNKED = {
    "model": "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "cache": {"kv_cache_memory_bytes": "6GiB"},
}
TURNS = {
    "name": "multi_turn",
    "params": {
        "num_requests": 60,
        "arrival": {"rate_per_s": 4.0},
        "think_time_s": 2.0,
        "output": {"mean": 40.0, "cv": 0.5, "maximum": 100},
    },
}


def turns(num_requests: int) -> dict[str, Any]:
    """Return the workload with so many requests."""
    return {**TURNS, "params": {**TURNS["params"], "num_requests": num_requests}}


def plain(base: dict[str, Any] = LLAMA, **sections: Any) -> Scenario:
    data = {**base, "workload": TURNS, **sections}
    data.setdefault("scheduler", {"max_model_len": 24_576})
    data.setdefault("engine", {"waste_samples": 16})
    return validated(Scenario, data)


def cluster(
    replicas: int, router: str, params: dict[str, Any] | None = None, **more: Any
) -> ClusterScenario:
    base = more.pop("base", LLAMA)
    section = {"replicas": replicas, "router": {"name": router, "params": params or {}}}
    return with_cluster(plain(base, **more), section)


def arrival(
    request_id: str = "r0",
    *,
    loads: Sequence[Load] = (Load(), Load(), Load()),
    cached: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    session: str | None = None,
    prompt: Sequence[Span] = (Span("a", 0, 100),),
) -> Arrival:
    spec = RequestSpec(request_id, tuple(prompt), Span("out", 0, 8), session_id=session)
    zeros = [0] * len(loads)
    return Arrival(spec, 0, loads, cached or zeros, blocks or zeros)


def started(scenario: ClusterScenario) -> _Cluster:
    """Return the parts of a run before its first event."""
    return _Cluster(assemble_cluster(scenario), NullProgress())


class NoParams(Strict):
    """None."""


class Asking(Router):
    """A router that asks a function of the test."""

    def __init__(self, choose: Callable[[Arrival], int], index: IndexSettings | None = None):
        self._choose = choose
        self.index = index

    def choose(self, arrival: Arrival) -> int:
        return self._choose(arrival)


def register(name: str, router: Callable[[], Router]) -> None:
    """Put a router of a test into the table; ``forget`` takes it out again."""
    params: type[BaseModel] = NoParams
    ROUTERS.register(name, RouterEntry(name, "of a test", params, lambda p, n: router()))


def forget(name: str) -> None:
    ROUTERS._entries.pop(name, None)
