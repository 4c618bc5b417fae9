"""Scenarios: what a run is made of. Strict keys; every default is written here and only here."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)

from sim.compat import AS_IS, fixes_of
from sim.errors import ConfigError, Problem, nearest
from sim.units import parse_bytes


def _bytes(value: Any) -> Any:
    try:
        return parse_bytes(value)
    except ConfigError as error:
        raise ValueError(error.problems[0].allowed) from None


def _compat(value: Any) -> Any:
    try:
        fixes_of(value)
    except ConfigError as error:
        problem = error.problems[0]
        other = f"; {problem.value or 'an empty name'} is not" if problem.value != value else ""
        raise ValueError(problem.allowed + other) from None
    return value


Compat = Annotated[str | dict[str, list[str]], PlainValidator(_compat)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=2**40)]


class Strict(BaseModel):
    """A section of a scenario: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class CacheConfig(Strict):
    """The KV memory and how it is cut; names as in vLLM's command line."""

    kv_cache_memory_bytes: Bytes = 60 * 2**30
    block_size: Count | None = None
    mamba_block_size: Count | None = None
    num_gpu_blocks_override: Count | None = None
    kv_cache_dtype: str = "auto"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: Literal["none", "align", "all"] | None = None
    enable_prefix_caching: bool | None = None
    prefix_cache_retention_interval: Annotated[int, Field(ge=0)] | None = None
    hash_block_size: Count | None = None
    grouping: str = "vllm"
    kv_cache_metrics: bool = False
    kv_cache_metrics_sample: Annotated[float, Field(gt=0, le=1)] = 0.01


class SchedulerConfig(Strict):
    """Limits of the scheduler; defaults of an API server on a GPU of 70 GiB or more."""

    max_num_batched_tokens: Count = 8192
    max_num_seqs: Count = 1024
    max_model_len: Count | None = None
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = True
    max_loras: Annotated[int, Field(ge=0)] = 0
    unschedulable: Literal["reject", "wait"] = "reject"


class EngineConfig(Strict):
    """Choices of the simulator itself.

    core is how a run is computed, not what comes out of it, so it is no part of the scenario that
    names and accompanies a result.
    """

    core: Annotated[Literal["auto", "python", "compiled"], Field(exclude=True)] = "auto"
    manager: Literal["native", "vllm"] = "native"
    free_queue: str = "lru"
    profile: str = "vllm-0.25.1"
    check_every: Annotated[int, Field(ge=0)] = 0
    reasons: bool = False
    kv_events: Literal["jsonl", "msgpack"] | None = None
    kv_events_hash: Literal["prefix_id", "sha256_cbor"] = "prefix_id"
    kv_events_hash_seed: str = "0"
    waste_samples: Annotated[int, Field(ge=2, le=100_000)] = 256


class Plugin(Strict):
    """A named plug-in and its own parameters, checked by the plug-in."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)


class LatencyPlugin(Plugin):
    """The step-time model."""

    name: str = "roofline"


class WorkloadPlugin(Plugin):
    """Where the requests come from."""

    name: str = "multi_turn"


class AcceptancePlugin(Plugin):
    """The model of how many drafts are accepted."""

    name: str = "geometric"


class Speculative(Strict):
    """Speculative decoding: the method, its tokens, and its layers where they are not the model's.

    Without a method, tokens mean the model's own MTP layers if it has any, else EAGLE.
    """

    speculative_method: str | None = None
    num_speculative_tokens: Annotated[int, Field(ge=0, le=1024)] = 0
    num_speculative_layers: Count | None = None
    draft_num_kv_heads: Count | None = None
    draft_head_size: Count | None = None
    draft_window: Count | None = None
    acceptance: AcceptancePlugin = AcceptancePlugin()


class Scenario(Strict):
    """Everything a run depends on. The same scenario and seed give the same bytes."""

    model: str
    hardware: str = "h100-80gb"
    cache: CacheConfig = CacheConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    speculative: Speculative = Speculative()
    engine: EngineConfig = EngineConfig()
    latency: LatencyPlugin = LatencyPlugin()
    workload: WorkloadPlugin = WorkloadPlugin()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    compat: Compat = AS_IS


def validated(model: type[Strict], data: Any, prefix: str = "") -> Any:
    """Return ``model`` built from plain data, or raise a ConfigError with one line per problem."""
    if not isinstance(data, dict):
        raise ConfigError.one(prefix or "scenario", data, "a mapping of keys to values")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError([_problem(model, e, prefix) for e in error.errors()]) from None


def _problem(model: type[BaseModel], error: Any, prefix: str) -> Problem:
    path = [str(part) for part in error["loc"]]
    key = ".".join([*([prefix] if prefix else []), *path])
    if error["type"] == "extra_forbidden":
        known = list(_section(model, path[:-1]).model_fields)
        return Problem(key, error["input"], f"known: {', '.join(known)}", nearest(path[-1], known))
    if error["type"] == "missing":
        return Problem(key, "missing", "a value is needed")
    suggestion = None
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        suggestion = nearest(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    return Problem(key, error["input"], _allowed(error["msg"]), suggestion)


def _section(model: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for part in path:
        field = model.model_fields.get(part)
        if field and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model


def _allowed(message: str) -> str:
    text = message.removeprefix("Value error, ").removeprefix("Input should be ")
    if text.startswith("a valid dictionary or instance of"):
        return "a mapping of keys to values"
    return text.removeprefix("Input ")
