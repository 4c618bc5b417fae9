"""What an engine refuses at start-up, and what it would not notice but a user should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.config import Scenario, SchedulerConfig
from sim.errors import ConfigError, Problem
from sim.layout.block_size import check_align
from sim.units import format_bytes

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.layout.plan import Layout
    from sim.models import ModelConfig


MAX_NUM_BLOCKS = 1 << 27
"""A block takes some 60 bytes of this program's memory: 8 GB."""


def check_startup(scenario: Scenario, layout: Layout) -> None:
    """Raise ConfigError where vLLM 0.25.1 would not start with these settings.

    Source: vLLM 0.25.1 ``SchedulerConfig``, asked as a black box; spec/layout.md 10.3 (align).
    """
    scheduler = scenario.scheduler
    num_blocks = layout.kv_cache_config.num_blocks
    if num_blocks > MAX_NUM_BLOCKS:
        allowed = f"a pool of at most {MAX_NUM_BLOCKS:,} blocks can be simulated"
        raise ConfigError.one("cache", f"{num_blocks:,} blocks", allowed)
    if layout.mamba_cache_mode == "all":
        allowed = "none or align: `all` can be planned (kvsim layout), not simulated yet"
        raise ConfigError.one("cache.mamba_cache_mode", "all", allowed)
    if scheduler.async_scheduling:
        allowed = "false: asynchronous scheduling does not exist yet"
        raise ConfigError.one("scheduler.async_scheduling", True, allowed)
    problems = _budget_problems(scheduler, layout.limits.max_model_len)
    if problems:
        raise ConfigError(problems)
    if layout.mamba_cache_mode == "align":
        check_align(
            layout.block_size,
            scheduler.max_num_batched_tokens,
            scheduler.long_prefill_token_threshold,
            enable_chunked_prefill=scheduler.enable_chunked_prefill,
        )


def _budget_problems(scheduler: SchedulerConfig, max_model_len: int) -> list[Problem]:
    key, budget = "scheduler.max_num_batched_tokens", scheduler.max_num_batched_tokens
    problems = []
    if budget < scheduler.max_num_seqs:
        allowed = f"at least max_num_seqs ({scheduler.max_num_seqs})"
        problems.append(Problem(key, budget, allowed))
    if budget < max_model_len and not scheduler.enable_chunked_prefill:
        allowed = f"at least max_model_len ({max_model_len}) without chunked prefill"
        problems.append(Problem(key, budget, allowed))
    return problems


def startup_notes(
    scenario: Scenario, model: ModelConfig, hardware: Hardware, layout: Layout
) -> list[str]:
    """Return remarks on a scenario that runs but may not mean what its author thinks."""
    notes = []
    # The same number prices a step in the roofline model.
    told = scenario.latency.params.get("weight_bytes_per_parameter")
    per_parameter = told or model.dims.weight_bytes_per_parameter or model.dtype_bytes
    weights = round(model.dims.num_parameters_total * per_parameter)
    memory = layout.settings.kv_cache_memory_bytes
    if weights + memory > hardware.memory_bytes:
        notes.append(
            f"{format_bytes(weights)} of weights ({per_parameter:.3g} bytes per parameter) and "
            f"{format_bytes(memory)} of KV memory do not fit the "
            f"{format_bytes(hardware.memory_bytes)} of {hardware.name}"
        )
    return notes + _without_effect(scenario, model, layout)


def _without_effect(scenario: Scenario, model: ModelConfig, layout: Layout) -> list[str]:
    """Name settings that the engine takes and ignores."""
    cache, is_cached = scenario.cache, layout.enable_prefix_caching
    reasons = []
    if cache.prefix_cache_retention_interval is not None and not is_cached:
        reasons.append(("prefix_cache_retention_interval", "prefix caching is off"))
    if cache.mamba_cache_mode == "align" and not model.has_recurrent:
        reasons.append(("mamba_cache_mode", "the model has no recurrent layers"))
    elif cache.mamba_cache_mode == "align" and not is_cached:
        reasons.append(("mamba_cache_mode", "prefix caching is off (--enable-prefix-caching)"))
    if cache.mamba_block_size is not None and not model.has_recurrent:
        reasons.append(("mamba_block_size", "the model has no recurrent layers"))
    elif cache.mamba_block_size is not None and layout.mamba_cache_mode == "align":
        reasons.append(("mamba_block_size", "mode align takes attention's block size"))
    return [f"{key} has no effect: {reason}" for key, reason in reasons]
