"""assemble(): a scenario in, everything that a run is made of out. Decides nothing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workloads
from sim.compat import fixes_of
from sim.config import (
    AcceptancePlugin,
    LatencyPlugin,
    Scenario,
    Speculative,
    Strict,
    WorkloadPlugin,
    validated,
)
from sim.contents import Contents
from sim.core.attention import check_attention_kind
from sim.core.eviction import EVICTION_POLICIES
from sim.core.kv_cache_manager import KVCacheManager
from sim.engine_choice import choose_step_time
from sim.errors import ConfigError
from sim.hardware import Hardware, find_hardware, load_hardware
from sim.latency import LATENCY_MODELS
from sim.layout.hybrid_manager import is_eagle
from sim.layout.plan import Layout, plan_layout
from sim.layout_scenario import layout_settings
from sim.models import ModelConfig, known_models, load_model
from sim.models.files import find_model
from sim.models.speculation import SPECULATIVE_METHODS, SpeculativeMethod
from sim.observer import NULL_OBSERVER, Observer
from sim.prefix_ids import PrefixIds
from sim.profiles import PROFILES
from sim.provenance import file_digest
from sim.registry import Registry
from sim.request import RequestSpec
from sim.results import run_id
from sim.scheduler.limits import SchedulerLimits
from sim.scheduler.scheduler import Scheduler
from sim.speculation import ACCEPTANCE_MODELS, build_num_sampled
from sim.startup import check_startup, startup_notes
from sim.vllm.choice import check_vllm_manager

if TYPE_CHECKING:
    from sim.latency.step_time_state import StepTimeState

WORKLOADS: Registry[workloads.Workload] = Registry("workload.name", workloads.WORKLOADS)


@dataclass(frozen=True, slots=True)
class Assembly:
    """A resolved scenario and everything that was looked up, checked and planned for it.

    step_time : of the compiled engine, None where the Python engine runs the scenario
    fallback : why the compiled engine does not, None if it does or was not wanted
    """

    scenario: Scenario
    model: ModelConfig
    hardware: Hardware
    layout: Layout
    workload: workloads.Workload
    workload_params: Any
    notes: tuple[str, ...]
    step_time: StepTimeState | None = None
    fallback: str | None = None


def assemble(scenario: Scenario) -> Assembly:
    """Resolve a scenario: fill in every default, plan the layout, check every name and value.

    Raises ConfigError for anything that is wrong; nothing has been simulated then.
    """
    EVICTION_POLICIES[scenario.engine.free_queue]
    model, hardware = load_model(scenario.model), load_hardware(scenario.hardware)
    profile = PROFILES[scenario.engine.profile]
    layout = plan_layout(model, layout_settings(scenario, model), profile)
    check_startup(scenario, layout)
    if scenario.engine.manager == "vllm":
        check_vllm_manager(scenario)
    for group in layout.kv_cache_config.kv_cache_groups:
        check_attention_kind(group.kv_cache_spec, fixes_of(scenario.compat))
    workload = WORKLOADS[scenario.workload.name]
    params = validated(workload.params, scenario.workload.params, "workload.params")
    build_num_sampled(scenario.speculative, scenario.seed)
    resolved = _resolved(scenario, layout, params)
    notes = tuple(startup_notes(scenario, model, hardware, layout))
    engine = choose_step_time(resolved, model, hardware, layout)
    return Assembly(resolved, model, hardware, layout, workload, params, notes, *engine)


def _resolved(scenario: Scenario, layout: Layout, workload_params: Any) -> Scenario:
    """Return the scenario with every default written out; resolving it again changes nothing."""
    latency = LATENCY_MODELS[scenario.latency.name]
    latency_params = validated(latency.params, scenario.latency.params, "latency.params")
    return scenario.model_copy(
        update={
            "model": _model_name(scenario.model),
            "cache": _with(
                scenario.cache,
                enable_prefix_caching=layout.enable_prefix_caching,
                mamba_cache_mode=layout.mamba_cache_mode,
            ),
            "scheduler": _with(scenario.scheduler, max_model_len=layout.settings.max_model_len),
            "speculative": _resolved_speculation(scenario.speculative, layout),
            "latency": LatencyPlugin(name=scenario.latency.name, params=_plain(latency_params)),
            "workload": WorkloadPlugin(name=scenario.workload.name, params=_plain(workload_params)),
        }
    )


def _resolved_speculation(speculative: Speculative, layout: Layout) -> Speculative:
    name = speculative.acceptance.name
    entry = ACCEPTANCE_MODELS[name]
    key = "speculative.acceptance.params"
    params = validated(entry.params, speculative.acceptance.params, key)
    resolved: Speculative = _with(
        speculative,
        speculative_method=layout.settings.speculative_method,
        acceptance=AcceptancePlugin(name=name, params=_plain(params)),
    )
    return resolved


def _model_name(name_or_path: str) -> str:
    """One name per model: the stem of a model that comes with the project, else as given."""
    stem = name_or_path.replace("/", "--")
    return stem if stem in known_models() else name_or_path


def _with(section: Strict, **values: Any) -> Any:
    return section.model_copy(update=values)


def _plain(params: Any) -> dict[str, Any]:
    plain: dict[str, Any] = params.model_dump(mode="json")
    return plain


def input_digests(assembly: Assembly) -> dict[str, str]:
    """Return the sha256 of everything that a run reads: model, hardware, and the workload's files.

    Raises ConfigError for a file that cannot be read.
    """
    scenario = assembly.scenario
    digests = {
        "model": file_digest(find_model(scenario.model)),
        "hardware": file_digest(find_hardware(scenario.hardware)),
    }
    for path in assembly.workload.files(assembly.workload_params):
        if Path(path).exists() and not Path(path).is_file():
            raise ConfigError.one("workload.params", str(path), "a regular file")
        try:
            digests[str(path)] = file_digest(Path(path))
        except OSError as error:
            allowed = f"a file that can be read ({error.strerror})"
            raise ConfigError.one("workload.params", str(path), allowed) from None
    return digests


def identify(scenario: Scenario) -> tuple[Scenario, str]:
    """Return the resolved scenario and the id of its run."""
    assembly = assemble(scenario)
    return assembly.scenario, run_id(assembly.scenario, input_digests(assembly))


def build_manager(assembly: Assembly, observer: Observer = NULL_OBSERVER) -> KVCacheManager:
    """Return the cache manager of a layout."""
    scenario, layout = assembly.scenario, assembly.layout
    return KVCacheManager(
        **_of_both_managers(assembly),
        observer=observer,
        free_queue=EVICTION_POLICIES[scenario.engine.free_queue],
        batches_in_flight=layout.limits.batches_in_flight,
        fixes=fixes_of(scenario.compat),
        note_new_blocks=False,
    )


def _of_both_managers(assembly: Assembly) -> dict[str, Any]:
    """Return the arguments that vLLM's manager takes as well."""
    scenario, layout = assembly.scenario, assembly.layout
    return {
        "kv_cache_config": layout.kv_cache_config,
        "max_model_len": layout.limits.max_model_len,
        "scheduler_block_size": layout.scheduler_block_size,
        "hash_block_size": layout.hash_block_size,
        "max_num_batched_tokens": layout.limits.max_num_batched_tokens,
        "enable_caching": layout.enable_prefix_caching,
        "use_eagle": is_eagle(layout.settings),
        "watermark": scenario.scheduler.watermark,
        "retention_interval": scenario.cache.prefix_cache_retention_interval,
        "decode_context_parallel_size": layout.limits.decode_context_parallel_size,
        "prefill_context_parallel_size": layout.limits.prefill_context_parallel_size,
    }


def build_vllm_manager(assembly: Assembly, contents: Contents) -> Any:
    """Return vLLM's own manager behind the same interface; requests have their content there."""
    from sim.vllm.manager import VllmKVCacheManager

    return VllmKVCacheManager(**_of_both_managers(assembly), contents=contents)


def build_scheduler(assembly: Assembly, manager: KVCacheManager) -> Scheduler:
    """Return the scheduler in front of a manager."""
    scheduler, layout = assembly.scenario.scheduler, assembly.layout
    limits = SchedulerLimits(
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_num_seqs=scheduler.max_num_seqs,
        max_model_len=layout.limits.max_model_len,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        scheduler_reserve_full_isl=scheduler.scheduler_reserve_full_isl,
    )
    is_align = layout.mamba_cache_mode == "align"
    speculative, method = assembly.scenario.speculative, _speculative_method(layout)
    num_drafts = speculative.num_speculative_tokens
    return Scheduler(
        manager,
        limits,
        layout.block_size if is_align else None,
        is_eagle(layout.settings),
        policy=scheduler.policy,
        async_scheduling=scheduler.async_scheduling,
        num_spec_tokens=num_drafts,
        num_lookahead_tokens=num_drafts if method is not None and method.has_lookahead else 0,
        max_loras=scheduler.max_loras,
        num_sampled=build_num_sampled(speculative, assembly.scenario.seed),
        fixes=fixes_of(assembly.scenario.compat),
    )


def _speculative_method(layout: Layout) -> SpeculativeMethod | None:
    name = layout.settings.speculative_method
    return SPECULATIVE_METHODS[name] if name is not None else None


def prefix_ids_maker(layout: Layout) -> Callable[[RequestSpec], Sequence[int]]:
    """Return the function that names the prefixes of a request, at the layout's hash block size."""
    if not layout.enable_prefix_caching:
        return lambda spec: ()
    identities = PrefixIds(layout.hash_block_size)
    # Eight bytes per identity: a long queue may hold millions of them.
    return lambda spec: array("q", identities.of(spec).tobytes())
