"""From a model and settings to a layout: the order of the engine's start-up.

`plan_layout` starts from a model, `plan_pool` (of `sim.layout.pool`) from specs;
`prepare_layers` is what `plan_layout` does before it, for those who plan the specs otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sim.layout.block_size import BlockSizes, check_align, scheduler_and_hash_block_size
from sim.layout.cache_mode import resolve_cache_mode
from sim.layout.capacity import Capacity
from sim.layout.hybrid_manager import resolve_hybrid_manager
from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import KVCacheSpec, MemoryLimits
from sim.layout.pool import Pool, WorkerPool, plan_pool
from sim.layout.resolve import resolve_specs
from sim.layout.settings import AUTO_FIT, LayoutSettings, check_settings, longest_allowed
from sim.layout.waste import static_waste
from sim.models.model_config import ModelConfig
from sim.models.pipeline import split_pipeline
from sim.models.sharding import shard
from sim.models.speculation import with_speculation
from sim.profiles import VLLM_0_25_1, Profile

__all__ = [
    "Layers",
    "Layout",
    "LayoutSettings",
    "Pool",
    "WorkerPool",
    "assemble_layout",
    "plan_layout",
    "plan_pool",
    "prepare_layers",
]

_NON_CAUSAL = (
    "Disabling chunked prefill: model has non-causal attention layers.",
    "Disabling prefix caching: model has non-causal attention layers.",
)


@dataclass(frozen=True, slots=True)
class Layers:
    """The specs of a model's layers, with everything that was resolved on the way.

    settings: as given, with every None filled in but those of options that stay off. specs: of the
    whole model on one rank, in order of registration; specs_by_worker: those of each stage.
    """

    settings: LayoutSettings
    limits: MemoryLimits
    sizes: BlockSizes
    specs: dict[str, KVCacheSpec]
    specs_by_worker: tuple[dict[str, KVCacheSpec], ...]
    log_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that planning decided.

    model: as given, of one rank before sharding. settings: as given, with every None filled in,
    except where None means that there is none: override, pipeline, speculation, backend. A
    ``max_model_len`` of -1 stays; ``limits`` has the length that fits.

    kv_cache_config: the scheduler's view of the first worker's pool. groups: of the whole model,
    with bundles; workers: the pool of each worker. block_size: the smallest group's, which is what
    the scheduler calls the block size; ``settings.block_size`` is attention's before pages were
    made equal. bytes_per_block and num_layers_longest_group: of one block id on all workers
    together, the latter in pages. scheduler_capacity: (tokens, concurrency) that the engine
    stores; it logs ``capacity``. kv_shared_target: layers that read another layer's cache.
    log_lines: the engine's own, verbatim and in its order. waste: see ``static_waste``.
    """

    model: ModelConfig
    settings: LayoutSettings
    kv_cache_config: KVCacheConfig
    limits: MemoryLimits
    enable_prefix_caching: bool
    mamba_cache_mode: str
    block_size: int
    scheduler_block_size: int
    hash_block_size: int
    page_size_bytes: int
    bytes_per_block: int
    num_layers_longest_group: int
    capacity: Capacity
    waste: dict[str, int]
    log_lines: tuple[str, ...]
    groups: tuple[KVCacheGroupSpec, ...] = ()
    workers: tuple[WorkerPool, ...] = ()
    scheduler_capacity: tuple[int, float] = (0, 0.0)
    kv_shared_target: Mapping[str, str] = field(default_factory=dict)


def plan_layout(
    model: ModelConfig, settings: LayoutSettings, profile: Profile = VLLM_0_25_1
) -> Layout:
    """Return the layout of a whole, unsharded model: sharding, speculation and stages included.

    Raises
    ------
    ConfigError
        A setting out of range; pages that cannot be made equal; a pool too small for one request
        of the maximum length; whatever else the engine refuses, in its words.

    Source: spec/layout.md 1.
    """
    layers = prepare_layers(model, settings, profile)
    longest = max(model.max_model_len, layers.limits.max_model_len)
    pool = plan_pool(layers.specs_by_worker, layers.settings, layers.limits, longest, profile)
    return assemble_layout(model, layers, pool, profile)


def prepare_layers(
    model: ModelConfig, settings: LayoutSettings, profile: Profile = VLLM_0_25_1
) -> Layers:
    """Return specs, limits and settings as they are when planning starts.

    Source: spec/layout.md 1, steps 1 to 4.
    """
    check_settings(settings, longest_allowed(model))
    mode = resolve_cache_mode(model, settings.enable_prefix_caching, settings.mamba_cache_mode)
    is_off, switch_lines = resolve_hybrid_manager(model, settings)
    settings = replace(
        settings,
        max_model_len=settings.max_model_len or model.max_model_len,
        enable_prefix_caching=mode.enable_prefix_caching,
        mamba_cache_mode=mode.mamba_cache_mode,
        disable_hybrid_kv_cache_manager=is_off,
        max_num_encoder_input_tokens=_encoder_tokens(model, settings),
    )
    length = settings.max_model_len or 0
    if length == AUTO_FIT:
        length = model.max_model_len
    own = _on_one_rank(model, settings)
    resolved = resolve_specs(own, settings, length, profile.default_block_size)
    settings, causal_lines = _without_caching_if_non_causal(settings, resolved.specs)
    sizes = resolved.sizes
    return Layers(
        settings=replace(
            settings, block_size=sizes.block_size, mamba_block_size=sizes.mamba_block_size
        ),
        limits=_limits(settings, length, profile),
        sizes=sizes,
        specs=resolved.specs,
        specs_by_worker=_by_worker(own, settings, resolved.specs),
        log_lines=(*mode.log_lines, *switch_lines, *sizes.log_lines, *causal_lines),
    )


def _encoder_tokens(model: ModelConfig, settings: LayoutSettings) -> int:
    """Longest encoder input: the user's, else the model's, else a whole batch."""
    return (
        settings.max_num_encoder_input_tokens
        or model.max_encoder_tokens
        or settings.max_num_batched_tokens
    )


def _on_one_rank(model: ModelConfig, settings: LayoutSettings) -> ModelConfig:
    """The layers of one rank, those of speculation included."""
    own = shard(model, settings.tensor_parallel_size)
    if settings.speculative_method is None:
        return own
    return with_speculation(
        own,
        settings.speculative_method,
        settings.num_speculative_tokens,
        settings.num_speculative_layers,
        settings.draft_layer,
    )


def _without_caching_if_non_causal(
    settings: LayoutSettings, specs: Mapping[str, KVCacheSpec]
) -> tuple[LayoutSettings, tuple[str, ...]]:
    """Source: spec/layout.md 1, step 4."""
    if not any(getattr(spec, "non_causal", False) for spec in specs.values()):
        return settings, ()
    lines = _NON_CAUSAL if settings.enable_prefix_caching else _NON_CAUSAL[:1]
    return replace(settings, enable_prefix_caching=False), lines


def _limits(settings: LayoutSettings, max_model_len: int, profile: Profile) -> MemoryLimits:
    return MemoryLimits(
        max_model_len=max_model_len,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        mamba_cache_mode=settings.mamba_cache_mode or "none",
        batches_in_flight=profile.batches_in_flight,
        max_num_encoder_input_tokens=settings.max_num_encoder_input_tokens or 0,
        decode_context_parallel_size=settings.decode_context_parallel_size,
        prefill_context_parallel_size=settings.prefill_context_parallel_size,
    )


def _by_worker(
    model: ModelConfig, settings: LayoutSettings, specs: dict[str, KVCacheSpec]
) -> tuple[dict[str, KVCacheSpec], ...]:
    if settings.pipeline_parallel_layers is None:
        return (specs,)
    stages = split_pipeline(model, settings.pipeline_parallel_layers)
    return tuple({name: specs[name] for name in names} for names in stages)


def assemble_layout(model: ModelConfig, layers: Layers, pool: Pool, profile: Profile) -> Layout:
    """Return the layout of pools that were planned for resolved layers."""
    settings, config, workers = layers.settings, pool.kv_cache_config, pool.workers
    groups = config.kv_cache_groups
    smallest = min((g.kv_cache_spec.block_size for g in groups), default=layers.sizes.block_size)
    if settings.mamba_cache_mode == "align":
        check_align(smallest, settings.max_num_batched_tokens)
    scheduler, hashed = scheduler_and_hash_block_size(
        groups,
        settings.hash_block_size,
        enable_prefix_caching=bool(settings.enable_prefix_caching),
        context_parallel_size=pool.limits.context_parallel_size,
        default=smallest,
    )
    return Layout(
        model=model,
        settings=replace(settings, hash_block_size=hashed),
        kv_cache_config=config,
        limits=pool.limits,
        enable_prefix_caching=bool(settings.enable_prefix_caching),
        mamba_cache_mode=settings.mamba_cache_mode or "none",
        block_size=smallest,
        scheduler_block_size=scheduler,
        hash_block_size=hashed,
        page_size_bytes=pool.groups[0].kv_cache_spec.page_size_bytes if groups else 0,
        bytes_per_block=sum(worker.bytes_per_block for worker in workers),
        num_layers_longest_group=sum(worker.slots_per_block for worker in workers),
        capacity=pool.capacity,
        waste=static_waste(pool, profile.reserved_blocks),
        log_lines=(*layers.log_lines, *pool.log_lines),
        groups=pool.groups,
        workers=workers,
        scheduler_capacity=pool.scheduler_capacity,
        kv_shared_target=model.kv_shared_target,
    )
