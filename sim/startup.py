"""What an engine refuses at start-up, and what it would not notice but a user should."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sim.config import (
    AcceptancePlugin,
    CacheConfig,
    EngineConfig,
    Scenario,
    SchedulerConfig,
    Speculative,
)
from sim.errors import ConfigError, Problem
from sim.layout.block_size import check_align
from sim.layout.kv_cache_spec import CrossAttentionSpec, KVCacheSpec, MemoryLimits
from sim.speculation import ACCEPTANCE_MODELS
from sim.units import cdiv, format_bytes

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
    _check_speculation(scenario.speculative)
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


_PLANNED_METHODS = ("extract_hidden_states",)


def _check_speculation(speculative: Speculative) -> None:
    method, tokens = speculative.speculative_method, speculative.num_speculative_tokens
    if method is not None and not tokens:
        key = "speculative.num_speculative_tokens"
        raise ConfigError.one(key, tokens, f"at least 1 with {method}")
    if method in _PLANNED_METHODS:
        allowed = f"another method: {method} can be planned (kvsim layout), it drafts nothing"
        raise ConfigError.one("speculative.speculative_method", method, allowed)


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
    return (
        notes + _never_fits(layout) + _never_hits(layout) + _without_effect(scenario, model, layout)
    )


def _never_fits(layout: Layout) -> list[str]:
    """Say if the longest request has no room although the engine's check passed.

    The check and the 1.00x of the log line count the null block, which holds nothing.
    Source: spec/real_cases.md B14.
    """
    num_blocks, limits = layout.kv_cache_config.num_blocks, layout.limits
    # The last token of a request is only sampled, never computed.
    needed = _blocks_for(layout, limits.max_model_len - 1)
    if needed < num_blocks:
        return []
    length = _longest_within(layout, num_blocks - 1)
    return [
        f"a request of max_model_len {limits.max_model_len:,} tokens never runs: it needs "
        f"{needed:,} blocks and the pool has {num_blocks - 1:,} beside the null block, which hold "
        f"{length:,} tokens of one request"
    ]


def _blocks_for(layout: Layout, num_tokens: int) -> int:
    """Return the blocks, in all groups, that the first ``num_tokens`` of a request need at once."""
    limits = replace(layout.limits, max_model_len=num_tokens)
    groups = layout.kv_cache_config.kv_cache_groups
    return sum(_blocks_of_group(group.kv_cache_spec, limits) for group in groups)


def _blocks_of_group(spec: KVCacheSpec, limits: MemoryLimits) -> int:
    """Bound the planner's maximum by the table: a window adds one block to it, align a state."""
    most = spec.max_blocks(limits)
    if isinstance(spec, CrossAttentionSpec):
        return most
    tokens_per_block = spec.block_size * limits.context_parallel_size
    table = cdiv(limits.max_model_len, tokens_per_block)
    return min(most, table + getattr(spec, "num_speculative_blocks", 0))


def _longest_within(layout: Layout, num_blocks: int) -> int:
    """Return the most tokens of one request that so many blocks hold, by bisection."""
    low, high = 0, layout.limits.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        fits = _blocks_for(layout, middle) <= num_blocks
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _never_hits(layout: Layout) -> list[str]:
    """Say if no request is long enough for a hit, which is a multiple of the block.

    Prompts are shorter than the model's length and their last token is computed again.
    Source: spec/real_cases.md B5.
    """
    size, length = layout.scheduler_block_size, layout.limits.max_model_len
    if not layout.enable_prefix_caching or size <= length - 2:
        return []
    return [
        f"prefix caching has no effect: hits are multiples of {size:,} tokens, "
        f"max_model_len is {length:,}"
    ]


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
    for key, is_set in (
        ("kv_events", scenario.engine.kv_events is not None),
        ("kv_cache_metrics", cache.kv_cache_metrics),
    ):
        if is_set and not is_cached:
            reasons.append((key, "prefix caching is off"))
    reasons += [*_without_events_or_metrics(scenario), *_without_drafts(scenario.speculative)]
    return [f"{key} has no effect: {reason}" for key, reason in reasons]


def _without_events_or_metrics(scenario: Scenario) -> list[tuple[str, str]]:
    engine, cache, as_is = scenario.engine, scenario.cache, EngineConfig()
    reasons = []
    if engine.kv_events_hash != as_is.kv_events_hash and engine.kv_events is None:
        reasons.append(("kv_events_hash", "kv_events is not set"))
    if engine.kv_events_hash_seed != as_is.kv_events_hash_seed:
        if engine.kv_events is None:
            reasons.append(("kv_events_hash_seed", "kv_events is not set"))
        elif engine.kv_events_hash == "prefix_id":
            reasons.append(("kv_events_hash_seed", "kv_events_hash is prefix_id"))
    sample = CacheConfig().kv_cache_metrics_sample
    if cache.kv_cache_metrics_sample != sample and not cache.kv_cache_metrics:
        reasons.append(("kv_cache_metrics_sample", "kv_cache_metrics is off"))
    return reasons


def _without_drafts(speculative: Speculative) -> list[tuple[str, str]]:
    if speculative.num_speculative_tokens:
        return []
    keys = ("num_speculative_layers", "draft_num_kv_heads", "draft_head_size", "draft_window")
    given = [key for key in keys if getattr(speculative, key) is not None]
    acceptance, as_is = speculative.acceptance, AcceptancePlugin()
    # A resolved scenario has the parameters written out, which is no wish of anybody's.
    params = ACCEPTANCE_MODELS[acceptance.name].params
    if acceptance.name != as_is.name or params(**acceptance.params) != params():
        given.append("acceptance")
    return [(key, "num_speculative_tokens is 0") for key in given]
