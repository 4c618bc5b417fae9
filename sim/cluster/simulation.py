"""simulate_cluster(): a scenario with a cluster in, a result out. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

import workloads
from sim.cluster.config import ClusterConfig, ClusterScenario, RouterPlugin, of_one_replica
from sim.cluster.front import Front
from sim.cluster.prefix_index import PrefixIndex
from sim.cluster.replica import Replica, ReplicaEngine
from sim.cluster.result import ClusterResult
from sim.cluster.router import Router
from sim.cluster.routers import ROUTERS
from sim.config import Scenario, validated
from sim.contents import Contents
from sim.engine_choice import not_compiled
from sim.engine_core import EngineCore
from sim.layout.report import layout_json
from sim.metrics.run_tables import RunTables
from sim.observer import NULL_OBSERVER, Observer
from sim.prefix_ids import Identities
from sim.progress import NullProgress, Progress
from sim.provenance import provenance
from sim.request import Request, RequestSpec
from sim.results import RunResult, run_id
from sim.simulation import (
    Assembly,
    _core,
    _encoder_tokens,
    _expected,
    _naming,
    _trace_error,
    assemble,
    input_digests,
    rare_collections,
)
from sim.watchers import Watchers


@dataclass(frozen=True, slots=True)
class ClusterAssembly:
    """A resolved scenario, everything looked up for one replica, and what builds the router.

    scenario : with every default written out; assembly.scenario is what each replica does
    run_id : names scenario and input files; digests : sha256 of each file
    """

    scenario: ClusterScenario
    assembly: Assembly
    run_id: str
    digests: dict[str, str]
    build_router: Callable[[], Router]


def assemble_cluster(
    scenario: ClusterScenario, check: Callable[[Assembly], None] = lambda assembly: None
) -> ClusterAssembly:
    """Resolve a scenario with a cluster. Raises ConfigError for anything that is wrong.

    check : may raise more of them, before files are read
    """
    cluster = scenario.cluster
    entry = ROUTERS[cluster.router.name]
    params = validated(entry.params, cluster.router.params, "cluster.router.params")
    has_index = entry.build(params, cluster.replicas).index is not None
    assembly = _assembled(of_one_replica(scenario), has_index)
    check(assembly)
    router = RouterPlugin(name=cluster.router.name, params=params.model_dump(mode="json"))
    resolved = ClusterScenario(
        **{name: getattr(assembly.scenario, name) for name in type(assembly.scenario).model_fields},
        cluster=ClusterConfig(replicas=cluster.replicas, router=router),
    )
    digests = input_digests(assembly)
    return ClusterAssembly(
        resolved,
        assembly,
        run_id(resolved, digests),
        digests,
        lambda: entry.build(params, cluster.replicas),
    )


def _assembled(scenario: Scenario, has_index: bool) -> Assembly:
    """Return what each replica is; only the Python engine tells an index what it caches."""
    core = scenario.engine.core
    if not has_index or core == "python":
        return assemble(scenario)
    reason = "it tells no router what it caches"
    if core == "compiled":
        raise not_compiled(reason)
    engine = scenario.engine.model_copy(update={"core": "python"})
    assembly = assemble(scenario.model_copy(update={"engine": engine}))
    return replace(assembly, fallback=reason)


def simulate_cluster(
    scenario: ClusterScenario | ClusterAssembly, *, progress: Progress | None = None
) -> ClusterResult:
    """Run a scenario on all its replicas to its end and return the result.

    Raises ConfigError for wrong input (also a wrong line far into a trace, or a router's answer
    that is no replica), InvariantError if a final recount finds broken state.
    """
    begin = perf_counter()
    plan = scenario if isinstance(scenario, ClusterAssembly) else assemble_cluster(scenario)
    cluster = _Cluster(plan, progress or NullProgress())
    cluster.run()
    tables = [replica.finish() for replica in cluster.replicas]
    origin = provenance(plan.scenario.seed, perf_counter() - begin, plan.digests)
    results = [
        _result(plan, number, tables[number], cluster.replicas[number].watchers, origin)
        for number in range(len(tables))
    ]
    has_index = cluster.front.router.index is not None
    return ClusterResult.of(
        plan.run_id, plan.scenario, results, cluster.front.routed, origin, has_index=has_index
    )


def _result(
    plan: ClusterAssembly,
    number: int,
    tables: RunTables,
    watchers: Watchers,
    origin: Mapping[str, Any],
) -> RunResult:
    """Return what one replica leaves behind, named after the cluster's run."""
    layout = plan.assembly.layout
    result = RunResult.of(
        plan.assembly.scenario,
        tables,
        layout_json(layout),
        layout.log_lines,
        origin,
        block_residency=watchers.block_residency(),
        attachments=watchers.files(),
    )
    return replace(result, run_id=f"{plan.run_id}.{number}")


class _Cluster:
    """The replicas, the front before them, and the clock that they share."""

    def __init__(self, plan: ClusterAssembly, progress: Progress):
        assembly = self._assembly = plan.assembly
        self._counter = _Counter(progress, _expected(assembly))
        self._num_replicas = plan.scenario.cluster.replicas
        router, index = plan.build_router(), None
        if router.index is not None:
            index = PrefixIndex(assembly.layout, router.index, self._num_replicas, self.now)
        may_forget = index is None and _may_forget(assembly)
        cached_ids = self._cached_ids if may_forget else None
        self._identities = Identities(assembly.layout.hash_block_size, cached_ids)
        self.replicas: list[Replica] = []
        listeners = index.replicas if index is not None else [NULL_OBSERVER] * self._num_replicas
        for listener in listeners:
            self.replicas.append(self._replica(listener))
        engines = [replica.engine for replica in self.replicas]
        self.front = Front(router, engines, self.now, index, self._name_prefixes)

    def _replica(self, observer: Observer) -> Replica:
        """Return the next replica; the first one makes the clock of all."""
        number, assembly = len(self.replicas), self._assembly
        scenario, layout = assembly.scenario, assembly.layout
        watchers, contents = Watchers(scenario, layout, self._random(number)), Contents()
        core, recorder = _core(assembly, observer, watchers, None, contents)
        if not number:
            name_prefixes = _naming(assembly, self._identities, core)
            self._name_prefixes = (
                name_prefixes if observer is NULL_OBSERVER else _Latest(name_prefixes)
            )
        prefix_ids = watchers.noting(self._name_prefixes)
        if scenario.engine.manager == "vllm":
            prefix_ids = contents.noting(prefix_ids)
        engine = ReplicaEngine(
            core,
            prefix_ids,
            partial(self._ended, watchers),
            _encoder_tokens(layout),
            self.replicas[0].engine.env if self.replicas else None,
            on_arrival=lambda request: recorder.request_added(request.arrival_ns),
            turn=number,
            num_turns=self._num_replicas,
            horizon=None if isinstance(core, EngineCore) else self._horizon,
        )
        return Replica(engine, recorder, watchers)

    def _ended(self, watchers: Watchers, request: Request) -> None:
        watchers.request_ended(request.request_id)
        self._identities.ended(request.request_id)
        self._counter.ended(request)

    def _random(self, number: int) -> Callable[[], float]:
        """Replica 0 draws what a plain run draws."""
        streams = workloads.Streams(self._assembly.scenario.seed)
        return streams.child("kv_cache_metrics", *((number,) if number else ())).random

    def _cached_ids(self) -> np.ndarray:
        return np.concatenate([r.engine.core.cached_prefix_ids() for r in self.replicas])

    def _horizon(self) -> float:
        """Return a time before which nothing can be sent to a replica.

        Ends of other replicas' requests matter only where the workload waits for one.
        """
        first = self.replicas[0].engine
        return first.env.peek() if self.front.is_waited_for else first.next_foreign_event()

    def now(self) -> int:
        """Return the time [ns]."""
        now: int = self.replicas[0].engine.env.now
        return now

    def run(self) -> None:
        """Let the workload go on until no event is left."""
        streams = workloads.Streams(self._assembly.scenario.seed)
        process, params = self._assembly.workload.process, self._assembly.workload_params
        submit = self.front.submit
        try:
            with rare_collections():
                self.replicas[0].engine.run(lambda env, _: process(env, submit, streams, params))
        except workloads.TraceFormatError as error:
            raise _trace_error(error) from None


def _may_forget(assembly: Assembly) -> bool:
    """Names of prefixes may be given again, unless somebody writes them down."""
    engine, cache = assembly.scenario.engine, assembly.scenario.cache
    writes = engine.kv_events is not None or cache.kv_cache_metrics or engine.reasons
    return not (writes or engine.manager == "vllm")


class _Latest:
    """Names the prefixes of a request once, also if the router and then an engine ask."""

    def __init__(self, name_prefixes: Callable[[RequestSpec], Sequence[int]]):
        self._name_prefixes = name_prefixes
        self._spec: RequestSpec | None = None
        self._prefix_ids: Sequence[int] = ()

    def __call__(self, spec: RequestSpec) -> Sequence[int]:
        if spec is not self._spec:
            self._prefix_ids = self._name_prefixes(spec)
            self._spec = spec
        return self._prefix_ids


class _Counter:
    """Counts ended requests of all replicas for the progress bar."""

    def __init__(self, progress: Progress, total: int | None):
        self._progress = progress
        self._total = total
        self._done = 0

    def ended(self, request: Request) -> None:
        """Take one request that ended."""
        self._done += 1
        self._progress.update(self._done, self._total, request.finish_ns)
