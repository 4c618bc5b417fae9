"""The engine settings that a layout depends on; names as on vLLM's command line."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import ConfigError, Problem
from sim.models.model_config import AttentionLayer, ModelConfig

MAX_COUNT = 2**40
MAX_BYTES = 2**60
AUTO_FIT = -1

_KEYS = {
    "max_model_len": "scheduler.max_model_len",
    "max_num_batched_tokens": "scheduler.max_num_batched_tokens",
    "block_size": "cache.block_size",
    "mamba_block_size": "cache.mamba_block_size",
    "num_gpu_blocks_override": "cache.num_gpu_blocks_override",
    "hash_block_size": "cache.hash_block_size",
    "max_num_encoder_input_tokens": "max_num_encoder_input_tokens",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "prefill_context_parallel_size": "prefill_context_parallel_size",
}
_MEMORY_KEY = "cache.kv_cache_memory_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSettings:
    """What the user chose; None means that the engine chooses.

    kv_cache_memory_bytes is per rank and exact: no memory is profiled. One number for every
    worker, or one for each pipeline stage (or for each rank, the ranks of a stage together).
    Lengths and block sizes are in tokens; a max_model_len of -1 is the longest that fits.

    kv_cache_dtype_skip_layers: layer numbers as text, or ``sliding_window``: they keep the model's
    dtype. pipeline_parallel_layers: transformer blocks of each stage. speculative_method: see
    `sim.models.speculation`; num_speculative_layers and draft_layer go with it. attention_backend:
    see `sim.layout.backends`. enable_cross_layers_blocks: a KV connector asks for packed blocks.
    kv_connector_supports_hma: False for a connector that cannot work with the hybrid manager.
    """

    kv_cache_memory_bytes: int | tuple[int, ...]
    max_num_batched_tokens: int
    max_model_len: int | None = None
    block_size: int | None = None
    mamba_block_size: int | None = None
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str | None = None
    enable_prefix_caching: bool | None = None
    num_gpu_blocks_override: int | None = None
    hash_block_size: int | None = None
    grouping: str = "vllm"
    tensor_parallel_size: int = 1
    pipeline_parallel_layers: tuple[int, ...] | None = None
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    disable_hybrid_kv_cache_manager: bool | None = None
    allow_chunked_local_attn_with_hybrid_kv_cache: bool = True
    kv_connector_supports_hma: bool = True
    enable_cross_layers_blocks: bool = False
    speculative_method: str | None = None
    num_speculative_tokens: int = 0
    num_speculative_layers: int | None = None
    draft_layer: AttentionLayer | None = None
    attention_backend: str | None = None
    max_num_encoder_input_tokens: int | None = None


def longest_allowed(model: ModelConfig) -> int:
    """Return the most that ``max_model_len`` may be: the model's own, or any if it names none."""
    return MAX_COUNT if model.max_model_len_is_assumed else model.max_model_len


def check_settings(settings: LayoutSettings, model_max_len: int) -> None:
    """Raise a ConfigError with one line for each number that is out of range.

    A ``max_model_len`` beyond ``model_max_len`` (see ``longest_allowed``) is refused. No KV memory
    at all is left to the admission check, which has the engine's words for it.
    """
    problems = [p for name in _KEYS if (p := _count(settings, name))] + _memory(settings)
    wanted = settings.max_model_len
    if not problems and wanted is not None and wanted > model_max_len:
        allowed = f"at most the model's own maximum of {model_max_len}"
        problems.append(Problem(_KEYS["max_model_len"], wanted, allowed))
    if settings.num_speculative_tokens and settings.speculative_method is None:
        allowed = "0 without a speculative_method"
        problems.append(Problem("num_speculative_tokens", settings.num_speculative_tokens, allowed))
    if problems:
        raise ConfigError(problems)


def _count(settings: LayoutSettings, name: str) -> Problem | None:
    value = getattr(settings, name)
    if value is None or (name == "max_model_len" and value == AUTO_FIT):
        return None
    return _out_of_range(_KEYS[name], value, 1, MAX_COUNT)


def _memory(settings: LayoutSettings) -> list[Problem]:
    given = settings.kv_cache_memory_bytes
    values = given if isinstance(given, tuple) else (given,)
    found = [_out_of_range(_MEMORY_KEY, value, 0, MAX_BYTES) for value in values]
    return [problem for problem in found if problem]


def _out_of_range(key: str, value: object, least: int, most: int) -> Problem | None:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return None
    return Problem(key, value, f"an integer from {least} to {most}")


def memory_by_worker(settings: LayoutSettings, num_stages: int) -> tuple[int, ...]:
    """Return the KV memory of each worker: one for each stage, or one for each rank.

    Raises ConfigError for another number of values.
    """
    given = settings.kv_cache_memory_bytes
    if not isinstance(given, tuple):
        return (given,) * num_stages
    ranks = num_stages * settings.tensor_parallel_size
    if len(given) not in (num_stages, ranks):
        allowed = f"{num_stages} values, one for each stage"
        if ranks != num_stages:
            allowed += f", or {ranks}, one for each rank"
        raise ConfigError.one(_MEMORY_KEY, f"{len(given)} values", allowed)
    return given
