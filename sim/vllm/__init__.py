"""vLLM's own classes behind the project's interfaces. Nothing of vLLM is imported before use.

vLLM is called as a black box: what it answers is compared, how it gets there is not looked at.
"""

from __future__ import annotations

from sim.vllm.installed import RECIPE, VERSION, is_installed, require_installed
from sim.vllm.raw_manager import build_manager
from sim.vllm.raw_scheduler import SchedulerSettings, build_scheduler
from sim.vllm.requests import block_hasher, to_vllm_request
from sim.vllm.specs import kv_cache_config
from sim.vllm.stepping import apply_output, ended_requests, set_drafts

__all__ = [
    "RECIPE",
    "VERSION",
    "SchedulerSettings",
    "apply_output",
    "block_hasher",
    "build_manager",
    "build_scheduler",
    "ended_requests",
    "is_installed",
    "kv_cache_config",
    "require_installed",
    "set_drafts",
    "to_vllm_request",
]
