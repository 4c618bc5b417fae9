"""simulate(): a scenario in, a result out. Puts the parts together and decides nothing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
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
from sim.core.integrity import check_integrity
from sim.core.kv_cache_manager import KVCacheManager
from sim.engine_core import EngineCore
from sim.errors import ConfigError, TraceError
from sim.hardware import Hardware, find_hardware, load_hardware
from sim.latency import LATENCY_MODELS, build_step_time
from sim.layout.hybrid_manager import is_eagle
from sim.layout.kv_cache_spec import CrossAttentionSpec
from sim.layout.plan import Layout, plan_layout
from sim.layout.report import layout_json
from sim.layout_scenario import layout_settings
from sim.models import ModelConfig, known_models, load_model
from sim.models.files import find_model
from sim.models.speculation import SPECULATIVE_METHODS, SpeculativeMethod
from sim.observer import NULL_OBSERVER, Observer
from sim.observers import together
from sim.profiles import PROFILES
from sim.progress import NullProgress, Progress
from sim.provenance import file_digest, provenance
from sim.reasons.recording import Reasons
from sim.records import Recorder
from sim.registry import Registry
from sim.request import PrefixIds, Request, RequestSpec
from sim.results import RunResult, run_id
from sim.scheduler.limits import SchedulerLimits
from sim.scheduler.scheduler import Scheduler
from sim.speculation import ACCEPTANCE_MODELS, build_num_sampled
from sim.startup import check_startup, startup_notes
from sim.vllm.choice import check_vllm_manager
from sim.watchers import Watchers

if TYPE_CHECKING:
    from sim.vllm.verification import Verification

WORKLOADS: Registry[workloads.Workload] = Registry("workload.name", workloads.WORKLOADS)


@dataclass(frozen=True, slots=True)
class Assembly:
    """A resolved scenario and everything that was looked up, checked and planned for it."""

    scenario: Scenario
    model: ModelConfig
    hardware: Hardware
    layout: Layout
    workload: workloads.Workload
    workload_params: Any
    notes: tuple[str, ...]


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
    return Assembly(resolved, model, hardware, layout, workload, params, notes)


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


def simulate(
    scenario: Scenario,
    *,
    progress: Progress | None = None,
    observer: Observer = NULL_OBSERVER,
    verification: Callable[[Assembly], Verification] | None = None,
) -> RunResult:
    """Run a scenario to its end and return its result.

    verification : builds what asks vLLM's own scheduler along and compares (sim.vllm)

    Raises ConfigError for wrong input (also a wrong line far into a trace), InvariantError if the
    final recount finds broken state.
    """
    assembly = assemble(scenario)
    digests = input_digests(assembly)
    begin = perf_counter()
    random = workloads.Streams(scenario.seed).child("kv_cache_metrics").random
    watchers = Watchers(assembly.scenario, assembly.layout, random)
    verified = verification(assembly) if verification is not None else None
    recorder, manager = _run(assembly, progress or NullProgress(), observer, watchers, verified)
    wall_time_s = perf_counter() - begin
    return RunResult.of(
        assembly.scenario,
        recorder.tables(manager),
        layout_json(assembly.layout),
        assembly.layout.log_lines,
        provenance(scenario.seed, wall_time_s, digests),
        block_residency=watchers.block_residency(),
        attachments=watchers.files(),
    )


def _run(
    assembly: Assembly,
    progress: Progress,
    observer: Observer,
    watchers: Watchers,
    verification: Verification | None = None,
) -> tuple[Recorder, KVCacheManager]:
    from sim.engine import Engine

    contents = Contents() if verification is None else verification.contents
    core, recorder = _core(assembly, observer, watchers, verification, contents)
    prefix_ids = watchers.noting(prefix_ids_maker(assembly.layout))
    if verification is not None or assembly.scenario.engine.manager == "vllm":
        prefix_ids = contents.noting(prefix_ids)
    counter = _Counter(progress, _expected(assembly), watchers)
    engine = Engine(core, prefix_ids, counter.ended, _encoder_tokens(assembly.layout))
    streams = workloads.Streams(assembly.scenario.seed)
    process, params = assembly.workload.process, assembly.workload_params
    try:
        engine.run(lambda env, submit: process(env, submit, streams, params))
    except workloads.TraceFormatError as error:
        raise _trace_error(error) from None
    core.give_up_all()
    if verification is not None:
        verification.finish()
    check_integrity(core.manager)
    return recorder, core.manager


def _core(
    assembly: Assembly,
    observer: Observer,
    watchers: Watchers,
    verification: Verification | None,
    contents: Contents,
) -> tuple[EngineCore, Recorder]:
    """Put manager, scheduler and recorder together, with everybody who watches them."""
    engine_config, layout = assembly.scenario.engine, assembly.layout
    num_groups = len(layout.kv_cache_config.kv_cache_groups)
    reasons = Reasons(num_groups) if engine_config.reasons else None
    also = [w for w in (reasons, verification and verification.log) if w is not None]
    manager = _manager(assembly, [observer, *watchers.observers, *also], contents)
    recorder = Recorder(layout, engine_config.waste_samples, reasons)
    scheduler, clocks = build_scheduler(assembly, manager), []
    if verification is not None:
        scheduler = verification.mirrored(scheduler)
        clocks.append(verification.at)
    if reasons is not None:
        reasons.attach(manager)
        clocks.append(recorder.tell_time)
    recorder.spec_decode_stats = scheduler.spec_decode_stats
    core = EngineCore(
        scheduler,
        build_step_time(assembly.scenario.latency, assembly.model, assembly.hardware, layout),
        recorder,
        reject_unschedulable=assembly.scenario.scheduler.unschedulable == "reject",
        check_every=engine_config.check_every,
        on_step=watchers.clock(clocks),
    )
    return core, recorder


def _manager(assembly: Assembly, observers: Sequence[Observer], contents: Contents) -> Any:
    if assembly.scenario.engine.manager == "vllm":
        return build_vllm_manager(assembly, contents)
    return build_manager(assembly, together(observers))


def _encoder_tokens(layout: Layout) -> int:
    """Longest encoder input where layers read one: a workload that names none means that."""
    groups = layout.kv_cache_config.kv_cache_groups
    reads = any(isinstance(group.kv_cache_spec, CrossAttentionSpec) for group in groups)
    return layout.limits.max_num_encoder_input_tokens if reads else 0


def _expected(assembly: Assembly) -> int | None:
    try:
        return assembly.workload.count(assembly.workload_params)
    except workloads.TraceFormatError as error:
        raise _trace_error(error) from None


def _trace_error(error: workloads.TraceFormatError) -> TraceError:
    return TraceError.one(error.key, error.value, error.allowed)


class _Counter:
    """Counts ended requests for the progress bar, and lets the watchers forget them."""

    def __init__(self, progress: Progress, total: int | None, watchers: Watchers):
        self._progress = progress
        self._watchers = watchers
        self._total = total
        self._done = 0

    def ended(self, request: Request) -> None:
        """Take one request that ended."""
        self._done += 1
        self._watchers.request_ended(request.request_id)
        self._progress.update(self._done, self._total, request.finish_ns)
