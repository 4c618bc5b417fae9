"""The engine settings that a layout depends on; names as on vLLM's command line."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import ConfigError, Problem

MAX_COUNT = 2**40

_KEYS = {
    "kv_cache_memory_bytes": "cache",
    "max_model_len": "scheduler",
    "max_num_batched_tokens": "scheduler",
    "block_size": "cache",
    "mamba_block_size": "cache",
    "num_gpu_blocks_override": "cache",
    "hash_block_size": "cache",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSettings:
    """What the user chose; None means that the engine chooses.

    kv_cache_memory_bytes is per rank and exact: no memory is profiled. Lengths and block sizes are
    in tokens.
    """

    kv_cache_memory_bytes: int
    max_num_batched_tokens: int
    max_model_len: int | None = None
    block_size: int | None = None
    mamba_block_size: int | None = None
    kv_cache_dtype: str = "auto"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str | None = None
    enable_prefix_caching: bool | None = None
    num_gpu_blocks_override: int | None = None
    hash_block_size: int | None = None
    grouping: str = "vllm"


def check_settings(settings: LayoutSettings, model_max_len: int) -> None:
    """Raise a ConfigError with one line for each number that is out of range.

    A ``max_model_len`` beyond the model's own is refused. No KV memory at all is left to the
    admission check, which has the engine's words for it.
    """
    problems = [p for name, section in _KEYS.items() if (p := _count(settings, name, section))]
    wanted = settings.max_model_len
    if not problems and wanted is not None and wanted > model_max_len:
        allowed = f"at most the model's own maximum of {model_max_len}"
        problems.append(Problem("scheduler.max_model_len", wanted, allowed))
    if problems:
        raise ConfigError(problems)


def _count(settings: LayoutSettings, name: str, section: str) -> Problem | None:
    value = getattr(settings, name)
    if value is None:
        return None
    least, most = (0, 2**60) if name == "kv_cache_memory_bytes" else (1, MAX_COUNT)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return None
    return Problem(f"{section}.{name}", value, f"an integer from {least} to {most}")
