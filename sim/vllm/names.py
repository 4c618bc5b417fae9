"""The names that are used of vLLM, imported once, on a machine with or without a GPU."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from importlib import import_module, metadata
from types import SimpleNamespace

from sim.vllm.installed import require_installed

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
}

_MANAGER = {
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "get_request_block_hasher": "vllm.v1.core.kv_cache_utils",
    "init_none_hash": "vllm.v1.core.kv_cache_utils",
    "sha256_cbor": "vllm.utils.hashing",
    "Request": "vllm.v1.request",
    "RequestStatus": "vllm.v1.request",
    "SamplingParams": "vllm.sampling_params",
    "LoRARequest": "vllm.lora.request",
}
_SCHEDULER = {
    "Scheduler": "vllm.v1.core.sched.scheduler",
    "AsyncScheduler": "vllm.v1.core.sched.async_scheduler",
    "ModelRunnerOutput": "vllm.v1.outputs",
    "DraftTokenIds": "vllm.v1.outputs",
    "SchedulerConfig": "vllm.config",
    "CacheConfig": "vllm.config",
    "ParallelConfig": "vllm.config",
    "ObservabilityConfig": "vllm.config",
    "KVEventsConfig": "vllm.config.kv_events",
}


@lru_cache(maxsize=1)
def manager_names() -> SimpleNamespace:
    """Return what a manager needs, with the spec classes as ``specs``. Takes some seconds once.

    Raises ConfigError if vLLM is not installed.
    """
    require_installed("vllm", "not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _choose_platform()
        names = _resolved(_MANAGER)
        names.specs = import_module("vllm.v1.kv_cache_interface")
        names.torch = import_module("torch")
        # The kinds of cache otherwise become known when a model is loaded.
        managers = import_module("vllm.v1.core.single_type_kv_cache_manager")
        managers.register_all_kvcache_specs(None)
    return names


@lru_cache(maxsize=1)
def scheduler_names() -> SimpleNamespace:
    """Return what a scheduler needs beside that."""
    names = manager_names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = _resolved(_SCHEDULER)
    return SimpleNamespace(**vars(names), **vars(more))


def _resolved(table: dict[str, str]) -> SimpleNamespace:
    return SimpleNamespace(**{n: getattr(import_module(m), n) for n, m in table.items()})


def _choose_platform() -> None:
    """Let vLLM start without a GPU: it looks for "cpu" in its own version.

    The name of the version is put right again when the choice is made. Where there is a GPU, or
    vLLM's CPU build, this changes nothing that matters here: only host code is called.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    told = metadata.version

    def version(name: str) -> str:
        found = told(name)
        return f"{found}+cpu" if name == "vllm" and "cpu" not in found else found

    metadata.version = version
    try:
        # Looked at for the first time, the platform is chosen.
        _ = import_module("vllm.platforms").current_platform
    finally:
        metadata.version = told
