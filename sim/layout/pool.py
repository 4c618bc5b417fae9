"""From specs to pools: groups, one pool for each worker, and what the scheduler sees of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sim.errors import ConfigError
from sim.layout.capacity import (
    Capacity,
    auto_fit,
    capacity_lines,
    capacity_of,
    check_admission,
    pool_capacity,
)
from sim.layout.grouping import heuristic_for
from sim.layout.groups import group_layers
from sim.layout.hybrid_manager import convert_to_one_type, is_eagle
from sim.layout.kv_cache_config import (
    Groups,
    KVCacheConfig,
    KVCacheGroupSpec,
    bytes_per_block,
    is_packed,
    kv_cache_config,
    num_blocks_in,
    scheduler_view,
    slots_per_block,
)
from sim.layout.kv_cache_spec import KVCacheSpec, MemoryLimits, UniformTypeKVCacheSpecs
from sim.layout.settings import AUTO_FIT, LayoutSettings, memory_by_worker
from sim.profiles import VLLM_0_25_1, Profile

Specs = Mapping[str, KVCacheSpec]


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """The pool of one worker: a pipeline stage, or one rank of it.

    memory_bytes: what the worker has, as given. slots_per_block: pages of one block.
    """

    kv_cache_config: KVCacheConfig
    memory_bytes: int
    bytes_per_block: int
    slots_per_block: int
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Pool:
    """Groups on pools of blocks, what they serve, and the log lines of making them.

    kv_cache_config: the scheduler's view, in which a bundle is its first layer's spec.
    groups: those of the whole model, bundles and all. workers: one pool each, all with the same
    number of blocks. capacity: what the first worker logs; the estimated length is the least of
    all workers, the admission bytes the most. scheduler_capacity: (tokens, concurrency) that the
    engine stores, from the scheduler's view. limits: with the length that auto-fit found.
    """

    kv_cache_config: KVCacheConfig
    groups: tuple[KVCacheGroupSpec, ...]
    workers: tuple[WorkerPool, ...]
    capacity: Capacity
    scheduler_capacity: tuple[int, float]
    limits: MemoryLimits
    log_lines: tuple[str, ...]


def plan_pool(
    specs: Specs | Sequence[Specs],
    settings: LayoutSettings,
    limits: MemoryLimits,
    longest: int,
    profile: Profile = VLLM_0_25_1,
) -> Pool:
    """Return the pools for given specs: groups, admission check, blocks, capacity.

    Parameters
    ----------
    specs : layer name to spec in order of registration, before pages are made equal; for several
        workers one mapping each, in rank order
    settings : of it the memory, the override, the grouping rule, the hybrid manager's switch (None
        is on), the speculative method, the packed layout, and whether the length is to be fitted
    limits : of one request; its length is where auto-fit starts from
    longest : bounds the estimated model length

    With an override the check goes by the memory that the overridden pool would have.

    Raises
    ------
    ConfigError
        What the engine refuses, in its words; a worker without layers beside others with some.

    Source: spec/layout.md 1, 5 to 9.
    """
    by_worker = [specs] if isinstance(specs, Mapping) else list(specs)
    memory = memory_by_worker(settings, len(by_worker))
    by_worker = _for_each_rank(by_worker, len(memory))
    merged, lines = _merged_by_name(by_worker), []
    if settings.disable_hybrid_kv_cache_manager:
        merged, lines = convert_to_one_type(merged)
    heuristic = heuristic_for(settings.grouping, limits)
    groups, more = group_layers(merged, heuristic, is_eagle=is_eagle(settings))
    projected = [project(groups, own) for own in by_worker]
    packed = is_packed(groups, cross_layers_blocks=settings.enable_cross_layers_blocks)
    planner = _Planner(settings, profile, longest, packed)
    return planner.plan(groups, projected, memory, limits, [*lines, *more])


def _for_each_rank(by_worker: list[Specs], num_workers: int) -> list[Specs]:
    """Ranks of one stage stand together and hold the same layers."""
    repeat = num_workers // len(by_worker)
    return [own for own in by_worker for _ in range(repeat)]


def _merged_by_name(by_worker: Sequence[Specs]) -> dict[str, KVCacheSpec]:
    merged: dict[str, KVCacheSpec] = {}
    for own in by_worker:
        for name, spec in own.items():
            if merged.setdefault(name, spec) != spec:
                allowed = "the same spec on every worker that holds the layer"
                raise ConfigError.one("specs", name, allowed)
    return merged


def project(groups: Groups, layer_names: Mapping[str, object]) -> tuple[KVCacheGroupSpec, ...]:
    """Return the groups with one worker's layers only; a group may be left without any.

    Number and order of groups are those of the whole model. Source: spec/layout.md 6.8.
    """
    projected = []
    for group in groups:
        own = tuple(name for name in group.layer_names if name in layer_names)
        spec = group.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            spec = spec.only(own)
        projected.append(KVCacheGroupSpec(own, spec, group.is_eagle_group and bool(own)))
    if groups and not any(group.layer_names for group in projected):
        text = (
            "at least one layer with a cache on every stage: the engine stops with "
            "`group_size must be greater than 0` or divides by zero"
        )
        raise ConfigError.one("pipeline_parallel_layers", "a stage without cached layers", text)
    return tuple(projected)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Sizes the pools of all workers, in the order of the engine's start-up."""

    settings: LayoutSettings
    profile: Profile
    longest: int
    packed: bool

    def plan(
        self,
        groups: Groups,
        projected: Sequence[Groups],
        memory: Sequence[int],
        limits: MemoryLimits,
        lines: list[str],
    ) -> Pool:
        """Return the pools; ``lines`` is what the log has said so far."""
        usable = [self._usable(g, m, lines) for g, m in zip(projected, memory, strict=True)]
        limits = self._fitted(projected, usable, limits, lines)
        for own, num_bytes in zip(projected, usable, strict=True):
            check_admission(own, limits, num_bytes)
        num_blocks = min(
            self._num_blocks(own, num_bytes)
            for own, num_bytes in zip(projected, usable, strict=True)
        )
        workers = []
        for own, num_bytes, given in zip(projected, usable, memory, strict=True):
            worker = self._worker(own, num_blocks, num_bytes, given, limits)
            workers.append(worker)
            lines += capacity_lines(worker.capacity, limits.max_model_len) if own else []
        return self._pool(tuple(groups), tuple(workers), limits, lines)

    def _usable(self, groups: Groups, memory: int, lines: list[str]) -> int:
        """The memory that a worker's pool goes by; an override sets it."""
        override = self.settings.num_gpu_blocks_override
        if override is None or not groups:
            return memory
        num_blocks = num_blocks_in(groups, memory, packed=self.packed)
        lines.append(
            f"Overriding num_gpu_blocks={num_blocks} with num_gpu_blocks_override={override}"
        )
        return override * bytes_per_block(groups, packed=self.packed)

    def _fitted(
        self,
        projected: Sequence[Groups],
        usable: Sequence[int],
        limits: MemoryLimits,
        lines: list[str],
    ) -> MemoryLimits:
        if self.settings.max_model_len != AUTO_FIT:
            return limits
        length, line = auto_fit(projected, usable, limits)
        lines.append(line)
        return replace(limits, max_model_len=length)

    def _num_blocks(self, groups: Groups, memory: int) -> int:
        if self.settings.num_gpu_blocks_override is not None and groups:
            return self.settings.num_gpu_blocks_override
        return num_blocks_in(groups, memory, packed=self.packed)

    def _worker(
        self, groups: Groups, num_blocks: int, usable: int, given: int, limits: MemoryLimits
    ) -> WorkerPool:
        return WorkerPool(
            kv_cache_config(groups, num_blocks, packed=self.packed),
            given,
            bytes_per_block(groups, packed=self.packed),
            slots_per_block(groups, packed=self.packed),
            capacity_of(groups, num_blocks, usable, limits, self.longest, self.profile),
        )

    def _pool(
        self,
        groups: tuple[KVCacheGroupSpec, ...],
        workers: tuple[WorkerPool, ...],
        limits: MemoryLimits,
        lines: list[str],
    ) -> Pool:
        view = scheduler_view(workers[0].kv_cache_config)
        capacities = [worker.capacity for worker in workers]
        stored = (0, 0.0)
        if groups:
            seen = view.kv_cache_groups
            concurrency, tokens, _ = pool_capacity(seen, view.num_blocks, limits, self.profile)
            stored = (tokens, concurrency)
        capacity = replace(
            capacities[0],
            admission_bytes=max(c.admission_bytes for c in capacities),
            estimated_max_model_len=min(c.estimated_max_model_len for c in capacities),
        )
        return Pool(view, groups, workers, capacity, stored, limits, tuple(lines))
