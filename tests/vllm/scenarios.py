"""Small scenarios of three kinds of models, whose pools are too small for what comes."""

from __future__ import annotations

from typing import Any

from sim.scenario_file import scenario_from

WORKLOAD = {
    "name": "multi_turn",
    "params": {
        "num_requests": 24,
        "max_session_tokens": 3000,
        "system_prompt": {"mean": 300, "cv": 0.3, "maximum": 600},
        "first_user": {"mean": 500, "cv": 0.8, "maximum": 1500},
        "user": {"mean": 100, "cv": 0.5, "maximum": 300},
        "output": {"mean": 30, "cv": 0.5, "maximum": 80},
        "think_time_s": 0.5,
        "arrival": {"rate_per_s": 4.0},
    },
}
MODELS = {
    "full": {"model": "meta-llama--Llama-3.1-8B", "cache": {"num_gpu_blocks_override": 300}},
    "sliding": {"model": "google--gemma-3-4b-it", "cache": {"num_gpu_blocks_override": 1500}},
    "align": {
        "model": "ai21labs--Jamba-v0.1",
        "cache": {"num_gpu_blocks_override": 60, "enable_prefix_caching": True},
    },
}
SCHEDULER = {"max_num_batched_tokens": 2048, "max_num_seqs": 8, "max_model_len": 4096}


def scenario(name: str, **keys: Any) -> Any:
    given = {**MODELS[name], "scheduler": SCHEDULER, "workload": WORKLOAD}
    return scenario_from(keys, given)
