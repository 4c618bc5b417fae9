"""simulate(): a scenario in, a result out. Puts the parts together and decides nothing."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import workloads
from sim.assembly import (
    WORKLOADS,
    Assembly,
    assemble,
    build_manager,
    build_scheduler,
    build_vllm_manager,
    identify,
    input_digests,
    prefix_ids_maker,
)
from sim.config import Scenario
from sim.contents import Contents
from sim.engine_choice import not_compiled
from sim.engine_core import EngineCore
from sim.errors import TraceError
from sim.latency import build_step_time
from sim.layout.kv_cache_spec import CrossAttentionSpec
from sim.layout.plan import Layout
from sim.layout.report import layout_json
from sim.observer import NULL_OBSERVER, Observer
from sim.observers import together
from sim.prefix_ids import Identities
from sim.progress import NullProgress, Progress
from sim.provenance import provenance
from sim.reasons.recording import Reasons
from sim.records import Recorder
from sim.request import Request, RequestSpec
from sim.results import RunResult
from sim.watchers import Watchers

if TYPE_CHECKING:
    from sim.engine_core_compiled import CompiledEngineCore
    from sim.profiling import Profiler
    from sim.vllm.verification import Verification

    Core = EngineCore | CompiledEngineCore

__all__ = [
    "WORKLOADS",
    "Assembly",
    "assemble",
    "build_compiled_core",
    "build_manager",
    "build_scheduler",
    "identify",
    "input_digests",
    "prefix_ids_maker",
    "rare_collections",
    "simulate",
]

_OBJECTS_PER_COLLECTION = 100_000


def simulate(
    scenario: Scenario,
    *,
    progress: Progress | None = None,
    observer: Observer = NULL_OBSERVER,
    verification: Callable[[Assembly], Verification] | None = None,
    profiler: Profiler | None = None,
) -> RunResult:
    """Run a scenario to its end and return its result.

    verification : builds what asks vLLM's own scheduler along and compares (sim.vllm)
    profiler : measures where the time goes; its profile becomes part of the provenance

    Raises ConfigError for wrong input (also a wrong line far into a trace), InvariantError if the
    final recount finds broken state.
    """
    assembly = assemble(scenario)
    digests = input_digests(assembly)
    begin = perf_counter()
    random = workloads.Streams(scenario.seed).child("kv_cache_metrics").random
    watchers = Watchers(assembly.scenario, assembly.layout, random)
    verified = verification(assembly) if verification is not None else None
    recorder, core = _run(
        assembly, progress or NullProgress(), observer, watchers, verified, profiler
    )
    wall_time_s = perf_counter() - begin
    profile = profiler and profiler.profile(wall_time_s)
    return RunResult.of(
        assembly.scenario,
        recorder.tables(core),
        layout_json(assembly.layout),
        assembly.layout.log_lines,
        provenance(scenario.seed, wall_time_s, digests, profile),
        block_residency=watchers.block_residency(),
        attachments=watchers.files(),
    )


def _run(
    assembly: Assembly,
    progress: Progress,
    observer: Observer,
    watchers: Watchers,
    verification: Verification | None = None,
    profiler: Profiler | None = None,
) -> tuple[Recorder, Core]:
    from sim.engine import Engine

    contents = Contents() if verification is None else verification.contents
    core, recorder = _core(assembly, observer, watchers, verification, contents)
    may_forget = _may_forget_names(assembly, observer, watchers, verification)
    size, cached_ids = assembly.layout.hash_block_size, core.cached_prefix_ids
    identities = Identities(size, cached_ids if may_forget else None)
    prefix_ids = watchers.noting(_naming(assembly, identities, core))
    if verification is not None or assembly.scenario.engine.manager == "vllm":
        prefix_ids = contents.noting(prefix_ids)
    if profiler is not None:
        profiler.attach(core)
        prefix_ids = profiler.timed("naming", prefix_ids)
    forget = (watchers.request_ended, identities.ended)
    counter = _Counter(progress, _expected(assembly), forget)
    engine = Engine(
        core,
        prefix_ids,
        counter.ended,
        _encoder_tokens(assembly.layout),
        on_arrival=lambda request: recorder.request_added(request.arrival_ns),
    )
    streams = workloads.Streams(assembly.scenario.seed)
    process, params = assembly.workload.process, assembly.workload_params
    try:
        with rare_collections():
            engine.run(lambda env, submit: process(env, submit, streams, params))
    except workloads.TraceFormatError as error:
        raise _trace_error(error) from None
    core.give_up_all()
    if verification is not None:
        verification.finish()
    core.check()
    return recorder, core


def _may_forget_names(
    assembly: Assembly, observer: Observer, watchers: Watchers, verification: Verification | None
) -> bool:
    """Names of prefixes may be given again, unless somebody writes them down or compares them."""
    engine = assembly.scenario.engine
    is_watched = observer is not NULL_OBSERVER or watchers.observers or verification is not None
    return not (is_watched or engine.reasons or engine.manager == "vllm")


def _naming(
    assembly: Assembly, identities: Identities, core: Core
) -> Callable[[RequestSpec], Sequence[int]]:
    """Return what names the prefixes of a request, in the form that the engine is fastest with."""
    if not assembly.layout.enable_prefix_caching:
        return lambda spec: ()
    if not isinstance(core, EngineCore):
        return identities.make_runs
    # Eight bytes per identity, and numbers of Python's own: a long queue may hold millions.
    return lambda spec: array("q", identities.make(spec).tobytes())


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles of dead objects every so many objects only, while a run goes on.

    A run frees what it makes by counting references. Python looks for cycles every 700 objects and
    goes through all that are alive, which takes a third of the time of a long trace.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, _OBJECTS_PER_COLLECTION) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)


def _core(
    assembly: Assembly,
    observer: Observer,
    watchers: Watchers,
    verification: Verification | None,
    contents: Contents,
) -> tuple[Core, Recorder]:
    """Return the engine that runs the assembly, and its recorder."""
    if assembly.step_time is None:
        return _python_core(assembly, observer, watchers, verification, contents)
    if observer is NULL_OBSERVER and verification is None:
        return build_compiled_core(assembly)
    if assembly.scenario.engine.core == "compiled":
        raise not_compiled("it has no observers, and nobody asks vLLM along")
    return _python_core(assembly, observer, watchers, verification, contents)


def build_compiled_core(assembly: Assembly) -> tuple[CompiledEngineCore, Recorder]:
    """Return the compiled engine of an assembly that has a step-time model for it."""
    from sim.engine_core_compiled import CompiledEngineCore

    manager = build_manager(assembly)
    recorder = Recorder(assembly.layout, assembly.scenario.engine.waste_samples)
    reject = assembly.scenario.scheduler.unschedulable == "reject"
    scheduler, step_time = build_scheduler(assembly, manager), assembly.step_time
    assert step_time is not None
    return CompiledEngineCore(manager, scheduler, step_time, recorder, reject), recorder


def _python_core(
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
    """Counts ended requests for the progress bar, and lets others forget them by their id."""

    def __init__(
        self, progress: Progress, total: int | None, forget: Sequence[Callable[[str], None]]
    ):
        self._progress = progress
        self._forget = forget
        self._total = total
        self._done = 0

    def ended(self, request: Request) -> None:
        """Take one request that ended."""
        self._done += 1
        for forget in self._forget:
            forget(request.request_id)
        self._progress.update(self._done, self._total, request.finish_ns)
