"""What ``kvsim layout`` is asked: a model or explicit layers, and every setting of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sim.config import (
    CacheConfig,
    Count,
    Scenario,
    SchedulerConfig,
    Speculative,
    Strict,
    validated,
)
from sim.errors import ConfigError
from sim.hardware import load_hardware
from sim.layout.from_log import Explanation, explain_log
from sim.layout.memory_estimate import (
    DEFAULT_UTILIZATION,
    MemoryEstimate,
    estimate_kv_memory,
)
from sim.layout.plan import Layout, plan_layout
from sim.layout.plan_specs import plan_specs
from sim.layout.settings import LayoutSettings
from sim.layout.specs_file import SpecsFile, load_specs
from sim.layout.startup_log import StartupLog
from sim.layout.state_blocks import check_state_blocks
from sim.models import AttentionLayer, ModelConfig, load_model
from sim.units import parse_bytes

KV_MEMORY_KEY = "cache.kv_cache_memory_bytes"
MAX_SEQS_KEY = "scheduler.max_num_seqs"


def _sizes(value: Any) -> Any:
    """``10GiB,9GiB`` is one size for each worker."""
    if isinstance(value, str) and "," in value:
        return tuple(_size(part.strip()) for part in value.split(","))
    return tuple(map(_size, value)) if isinstance(value, tuple | list) else _size(value)


def _size(value: Any) -> int:
    try:
        size = parse_bytes(value)
    except ConfigError as error:
        raise ValueError(error.problems[0].allowed) from None
    if size <= 0:
        raise ValueError("greater than 0")
    return size


def _numbers(value: Any) -> Any:
    """``31,31`` is a list of numbers."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        return tuple(int(part) if part.isdecimal() else part for part in parts)
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


def _length(value: Any) -> Any:
    """``auto`` is vLLM's other name of -1, the longest that fits."""
    if value in ("auto", -1):
        return -1
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError("a number of tokens of at least 1, or -1 for the longest that fits")
    return value


def _words(value: Any) -> Any:
    return tuple(value.split(",")) if isinstance(value, str) else value


class LayoutCache(CacheConfig):
    """The cache of a scenario; the memory may be one size for each worker."""

    kv_cache_memory_bytes: Annotated[int | tuple[int, ...], BeforeValidator(_sizes)] = (
        CacheConfig.model_fields["kv_cache_memory_bytes"].default
    )
    kv_cache_dtype_skip_layers: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    disable_hybrid_kv_cache_manager: bool | None = None
    enable_cross_layers_blocks: bool = False


class LayoutScheduler(SchedulerConfig):
    """The scheduler of a scenario; -1 is the longest request that fits."""

    max_model_len: Annotated[int | None, BeforeValidator(_length)] = None
    max_num_encoder_input_tokens: Count | None = None


class Parallel(Strict):
    """How ranks share a model; pipeline_parallel_layers are the layers of each stage."""

    tensor_parallel_size: Count = 1
    pipeline_parallel_size: Count = 1
    pipeline_parallel_layers: (
        Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_numbers)] | None
    ) = None
    decode_context_parallel_size: Count = 1
    prefill_context_parallel_size: Count = 1


class Gpu(Strict):
    """A GPU whose KV memory is estimated; without a name there is no estimate."""

    gpu: str | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = DEFAULT_UTILIZATION
    weight_dtype: str = "bf16"


class LayoutScenario(Scenario):
    """Everything that a layout depends on."""

    model: str = ""
    cache: LayoutCache = LayoutCache()
    scheduler: LayoutScheduler = LayoutScheduler()
    parallel: Parallel = Parallel()
    memory: Gpu = Gpu()
    attention_backend: str | None = None


def layout_scenario(keys: Mapping[str, Any]) -> LayoutScenario:
    """Return the scenario of dotted keys, such as ``{"cache.block_size": 32}``.

    Raises
    ------
    ConfigError
        One line per wrong key or value.
    """
    data: dict[str, Any] = {}
    for key, value in keys.items():
        section, dot, name = key.rpartition(".")
        (data.setdefault(section, {}) if dot else data)[name] = value
    return validated(LayoutScenario, data)


def layout_settings(scenario: Scenario, model: ModelConfig | None = None) -> LayoutSettings:
    """Return the part of a scenario that decides about the layout.

    The model fills in what only it knows: the even split of its layers over pipeline stages, and
    its own speculative layers.
    """
    known = {field.name for field in fields(LayoutSettings)}
    given = {**scenario.scheduler.model_dump(), **scenario.cache.model_dump()}
    given |= scenario.speculative.model_dump()
    given |= {
        "speculative_method": speculative_method(scenario.speculative, model),
        "draft_layer": _draft(scenario.speculative),
    }
    if isinstance(scenario, LayoutScenario):
        given |= scenario.parallel.model_dump()
        given |= {
            "attention_backend": scenario.attention_backend,
            "pipeline_parallel_layers": _stages(scenario.parallel, model),
        }
    return LayoutSettings(**{name: value for name, value in given.items() if name in known})


def _stages(parallel: Parallel, model: ModelConfig | None) -> tuple[int, ...] | None:
    if parallel.pipeline_parallel_layers is not None:
        return parallel.pipeline_parallel_layers
    stages = parallel.pipeline_parallel_size
    if stages == 1 or model is None:
        return None
    return even_stages(model.dims.num_hidden_layers, stages)


def even_stages(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Return the layers of each pipeline stage where nobody says otherwise.

    What does not divide goes, a layer each, to the stages before the last one, the last of them
    first: the last stage also has the output head. Source: ours, meant to be vLLM's default split;
    spec/layout.md is silent about it and nothing here compares it with the engine.

    >>> even_stages(61, 2), even_stages(63, 4)
    ((31, 30), (16, 16, 16, 15))
    """
    if num_stages > num_layers:
        key = "parallel.pipeline_parallel_size"
        raise ConfigError.one(key, num_stages, f"at most the model's {num_layers} layers")
    each, more = divmod(num_layers, num_stages)
    first = num_stages - 1 - more
    return tuple(each + (first <= idx < num_stages - 1) for idx in range(num_stages))


def speculative_method(speculative: Speculative, model: ModelConfig | None) -> str | None:
    """Return the method, chosen by the model where only tokens are given; None for none."""
    if speculative.speculative_method or not speculative.num_speculative_tokens:
        return speculative.speculative_method
    return "mtp" if model is not None and model.mtp_layers else "eagle"


def _draft(speculative: Speculative) -> AttentionLayer | None:
    shape = (speculative.draft_num_kv_heads, speculative.draft_head_size)
    if shape == (None, None):
        return None
    if None in shape:
        key = "speculative.draft_num_kv_heads"
        raise ConfigError.one(key, shape[0] or "missing", "together with draft_head_size")
    return AttentionLayer(
        name="draft",
        num_kv_heads=shape[0],
        head_size=shape[1],
        sliding_window=speculative.draft_window,
    )


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """A model or explicit layers, and the keys that were given: what to plan, and for whom.

    keys: dotted keys of a ``LayoutScenario`` to values, such as ``cache.block_size``.
    """

    name: str
    keys: Mapping[str, Any]
    model: ModelConfig | None = None
    specs: SpecsFile | None = None

    @classmethod
    def of(cls, model: str | None, specs: Path | None, keys: Mapping[str, Any]) -> LayoutRequest:
        """Return the request for a model by name or path, or for a file of layers."""
        if specs is not None:
            file = load_specs(specs)
            return cls(file.name, keys, specs=file)
        loaded = load_model(model or "")
        return cls(loaded.name, keys, model=loaded)

    def scenario(self, changes: Mapping[str, Any] | None = None) -> LayoutScenario:
        """Return what was asked for, with some settings changed, under vLLM's names."""
        changed = {key_of(name): value for name, value in _expanded(changes or {}).items()}
        return layout_scenario({**self.keys, "model": self.name, **changed})

    def settings(self, changes: Mapping[str, Any] | None = None) -> LayoutSettings:
        """Return the planner's settings, with the estimated memory where one is asked for."""
        settings = layout_settings(self.scenario(changes), self.model)
        estimate = None if changes else self.estimate()
        if estimate is None:
            return settings
        return replace(settings, kv_cache_memory_bytes=estimate.kv)

    def plan(self, changes: Mapping[str, Any] | None = None) -> Layout:
        """Return the layout of what was asked for, with some settings changed."""
        settings = self.settings(changes)
        if self.specs is not None:
            layout = plan_specs(self.specs, settings)
        else:
            layout = plan_layout(_known(self.model), settings)
        if MAX_SEQS_KEY in self.keys:
            check_state_blocks(layout, self.scenario().scheduler.max_num_seqs)
        return layout

    def estimate(self) -> MemoryEstimate | None:
        """Return the estimated KV memory; None without a GPU, or where the memory is given."""
        scenario = self.scenario()
        memory, parallel = scenario.memory, scenario.parallel
        if memory.gpu is None or KV_MEMORY_KEY in self.keys:
            return None
        if self.model is None:
            raise ConfigError.one("memory.gpu", memory.gpu, "nothing: layers have no weights")
        stages = len(parallel.pipeline_parallel_layers or ()) or parallel.pipeline_parallel_size
        return estimate_kv_memory(
            total_bytes=_memory_of(memory.gpu),
            utilization=memory.gpu_memory_utilization,
            num_parameters=self.model.dims.num_parameters_total,
            weight_dtype=memory.weight_dtype,
            hidden_size=self.model.dims.hidden_size,
            max_num_batched_tokens=scenario.scheduler.max_num_batched_tokens,
            num_ranks=parallel.tensor_parallel_size * stages,
        )

    def explain(self, log: StartupLog) -> Explanation:
        """Return whether the layout agrees with a log, and what would make it agree.

        Settings that the log states count, where the request does not say otherwise.
        """
        stated = {key_of(name): value for name, value in log.settings.items()}
        request = replace(self, keys={**stated, **self.keys})
        num_layers = self.model.dims.num_hidden_layers if self.model else 0
        return explain_log(log, request.plan, num_layers)


def _memory_of(gpu: str) -> int:
    try:
        return load_hardware(gpu).memory_bytes
    except ConfigError as error:
        problems = [replace(p, key="memory.gpu") if p.value == gpu else p for p in error.problems]
        raise ConfigError(problems) from None


def _known(model: ModelConfig | None) -> ModelConfig:
    if model is None:
        raise ValueError("a request has a model or explicit layers")
    return model


def key_of(name: str) -> str:
    """Return the dotted key of a setting by vLLM's name.

    >>> key_of("tensor_parallel_size")
    'parallel.tensor_parallel_size'
    """
    for section, part in LayoutScenario.model_fields.items():
        if isinstance(part.default, Strict) and name in type(part.default).model_fields:
            return f"{section}.{name}"
    return name


def _expanded(changes: Mapping[str, Any]) -> dict[str, Any]:
    """A cache mode decides about prefix caching, and no tokens mean no method."""
    more: dict[str, Any] = {}
    if "mamba_cache_mode" in changes:
        more["enable_prefix_caching"] = changes["mamba_cache_mode"] != "none"
    if changes.get("num_speculative_tokens") == 0:
        more["speculative_method"] = None
    return {**changes, **more}
