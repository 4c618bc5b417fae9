"""Whole scenarios that both engines run, on pools so small that they evict and preempt.

``happens`` says what must have happened in a run, so that a change elsewhere cannot make it an easy
one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.config import Scenario, validated
from sim.results import RunResult
from sim.scenario_file import known_scenarios, load_scenario

ROOT = Path(__file__).parents[2]
ALIGN = {"enable_prefix_caching": True, "mamba_cache_mode": "align"}
ALL = {"enable_prefix_caching": True, "mamba_cache_mode": "all"}
GEMMA, LLAMA, GPT_OSS, JAMBA, QWEN, SCOUT, DEEPSEEK = (
    "google--gemma-3-27b-it",
    "meta-llama--Llama-3.1-8B",
    "openai--gpt-oss-20b",
    "ai21labs--Jamba-v0.1",
    "Qwen--Qwen3-Next-80B-A3B-Instruct",
    "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "deepseek-ai--DeepSeek-V3",
)


def lengths(mean: float, maximum: int) -> dict[str, Any]:
    return {"mean": mean, "cv": 0.8, "maximum": maximum}


def turns(num_requests: int, scale: float = 1.0, **params: Any) -> dict[str, Any]:
    """Sessions that come faster than they are served, with prompts of a few thousand tokens."""
    told = {
        "num_requests": num_requests,
        "num_system_prompts": 3,
        "system_prompt": lengths(300 * scale, int(900 * scale)),
        "first_user": lengths(700 * scale, int(3000 * scale)),
        "user": lengths(200 * scale, int(900 * scale)),
        "output": lengths(150 * scale, int(600 * scale)),
        "think_time_s": 1.0,
        "max_session_tokens": int(6000 * scale),
        "arrival": {"rate_per_s": 4.0},
        **params,
    }
    return {"name": "multi_turn", "params": told}


def tenants(num_requests: int, **arrival: Any) -> dict[str, Any]:
    told = {
        "num_requests": num_requests,
        "num_tenants": 6,
        "system_prompt": lengths(500, 2000),
        "user": lengths(100, 500),
        "output": lengths(120, 500),
        "arrival": arrival or {"kind": "closed", "concurrency": 24},
    }
    return {"name": "shared_prefix", "params": told}


@dataclass(frozen=True)
class Case:
    """One scenario; blocks : in the pool; happens : what must be seen, of ``seen_in``."""

    name: str
    model: str
    workload: dict[str, Any]
    blocks: int | None = None
    cache: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, Any] = field(default_factory=dict)
    happens: Set[str] = frozenset({"hits", "evictions", "preemptions"})

    def scenario(self, core: str) -> Scenario:
        cache = dict(self.cache)
        if self.blocks is not None:
            cache["num_gpu_blocks_override"] = self.blocks
        scheduler = {"max_model_len": 8192, **self.scheduler}
        data = {"model": self.model, "workload": self.workload, "cache": cache}
        data |= {"scheduler": scheduler, "engine": {"core": core}, **self.sections}
        return validated(Scenario, data)


OPEN = {"scheduler_reserve_full_isl": False}
SHORT = {"max_model_len": 2048}
CONSTANT = {"latency": {"name": "constant", "params": {"step_ms": 30.0}}}
AFFINE = {"latency": {"name": "affine"}}

LONG = turns(
    60,
    num_system_prompts=2,
    first_user=lengths(9000, 30_000),
    user=lengths(2500, 8000),
    max_session_tokens=60_000,
)
TOO_LONG = turns(800, first_user=lengths(3000, 12_000), max_session_tokens=16_000)
BURSTS = turns(500, arrival={"kind": "gamma", "rate_per_s": 20.0, "burstiness": 0.2})
ROOM = {"watermark": 0.05, "max_num_seqs": 12}
NO_CACHE = {"enable_prefix_caching": False}
BUDGET = {
    "max_num_batched_tokens": 256,
    "long_prefill_token_threshold": 100,
    "max_num_seqs": 128,
}

FEW = {"hits", "evictions"}
SYNC = {**SHORT, "async_scheduling": False}
ENDLESS = tenants(40, kind="closed", concurrency=1)

SMALL = [
    Case("gemma", GEMMA, turns(30, 0.3), 910, scheduler={**SHORT, **OPEN}, happens=FEW),
    Case("jamba align", JAMBA, turns(14, 0.3), 42, ALIGN, {**SHORT, **OPEN}, AFFINE, FEW),
    Case("llama sync", LLAMA, tenants(20), 135, scheduler=SYNC, sections=CONSTANT),
]
LARGE = [
    Case("gemma", GEMMA, turns(500), 4000),
    Case("gemma open gate", GEMMA, turns(500), 3700, scheduler=OPEN),
    Case("llama", LLAMA, turns(800), 700),
    Case("llama priority", LLAMA, turns(800), 600, scheduler={"policy": "priority"}),
    Case("llama tenants", LLAMA, tenants(1500), 600, scheduler=OPEN, sections=CONSTANT),
    Case("gpt-oss", GPT_OSS, turns(800), 1050, scheduler=OPEN),
    Case("gpt-oss sync", GPT_OSS, turns(800), 1050, scheduler={"async_scheduling": False}),
    Case("jamba align", JAMBA, turns(500), 120, ALIGN, OPEN),
    Case("jamba align gate", JAMBA, turns(500), 125, ALIGN, {"async_scheduling": False}),
    Case("jamba all", JAMBA, turns(500), 60, ALL, OPEN),
    Case("jamba", JAMBA, turns(500), 112, happens={"preemptions"}),
    Case("qwen3-next align", QWEN, turns(500), 26, ALIGN, OPEN),
    Case("scout", SCOUT, LONG, 11_400, scheduler={**OPEN, "max_model_len": 131_072}),
    Case("deepseek-v3", DEEPSEEK, turns(800), 150, scheduler=OPEN),
    Case("deepseek-v4", "deepseek-ai--DeepSeek-V4-Flash", BURSTS, 3400, scheduler=OPEN),
    Case("falcon-mamba all", "tiiuae--falcon-mamba-7b", BURSTS, 530, ALL, OPEN, happens=FEW),
    Case("granite align", "ibm-granite--granite-4.0-h-tiny", turns(500), 90, ALIGN, OPEN, AFFINE),
    Case("no cache", LLAMA, turns(800), 600, NO_CACHE, OPEN, AFFINE, {"preemptions"}),
    Case("whole prompts", LLAMA, turns(800), 600, scheduler={"enable_chunked_prefill": False}),
    Case("watermark", GEMMA, turns(500), 4000, scheduler=ROOM, happens=FEW),
    Case("small budget", GPT_OSS, turns(500), 1050, scheduler={**OPEN, **BUDGET}),
    Case("retention", GEMMA, turns(500), 4000, {"prefix_cache_retention_interval": 4096}, OPEN),
    Case("wait", LLAMA, turns(800), 520, scheduler={**OPEN, "unschedulable": "wait"}),
    Case("too long", LLAMA, TOO_LONG, 600, scheduler=OPEN, happens={*FEW, "rejections"}),
]


def headline(name: str, core: str) -> Scenario:
    """Return a scenario of ``configs/scenarios``, shortened and with the trace that comes along."""
    data = {**load_scenario(name), "engine": {"core": core}}
    if data["workload"]["name"] == "mooncake":
        path = str(ROOT / "configs" / "traces" / "sample.jsonl")
        data["workload"] = {"name": "mooncake", "params": {"path": path}}
    else:
        params = data["workload"].get("params", {})
        data["workload"] = {**data["workload"], "params": {**params, "num_requests": 400}}
    return validated(Scenario, data)


HEADLINES = sorted(known_scenarios())


def seen_in(result: RunResult) -> set[str]:
    """Return what happened in a run: hits, evictions, preemptions, rejections."""
    requests, steps = result.requests, result.steps
    conditions = {
        "hits": result.tables.prefix_cache_hits > 0,
        # No free block is empty: each one that is taken loses its content.
        "evictions": (steps["free_blocks"] == steps["cached_free_blocks"]).any(),
        "preemptions": requests["preemptions"].sum() > 0,
        "rejections": (requests["outcome"] == "rejected").any(),
    }
    return {name for name, holds in conditions.items() if holds}
