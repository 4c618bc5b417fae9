"""From a model and settings to a layout: the order of the engine's start-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sim.layout.block_size import (
    BlockSizes,
    align_pages,
    attention_block_size,
    check_align,
    recurrent_block_size,
    scheduler_and_hash_block_size,
)
from sim.layout.cache_mode import CacheMode, resolve_cache_mode
from sim.layout.capacity import Capacity, capacity_lines, capacity_of, check_admission
from sim.layout.dtypes import kv_cache_dtype_bytes, state_dtype_bytes
from sim.layout.grouping import GROUPING_HEURISTICS
from sim.layout.groups import group_layers
from sim.layout.kv_cache_config import (
    KVCacheConfig,
    bytes_per_block,
    kv_cache_config,
    longest_group,
    num_blocks_in,
)
from sim.layout.kv_cache_spec import KVCacheSpec, MemoryLimits
from sim.layout.settings import LayoutSettings, check_settings
from sim.layout.specs import SpecBuilder
from sim.layout.waste import static_waste
from sim.models.model_config import ModelConfig, RecurrentLayer
from sim.profiles import VLLM_0_25_1, Profile

__all__ = ["Layout", "LayoutSettings", "Pool", "plan_layout", "plan_pool"]


@dataclass(frozen=True, slots=True)
class Pool:
    """Groups on a pool of blocks, what it serves, and the log lines of making it."""

    kv_cache_config: KVCacheConfig
    capacity: Capacity
    log_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that planning decided.

    settings: as given, with every None filled in, except ``num_gpu_blocks_override``, where None
    means that there is no override. block_size: the smallest group's, which is what the scheduler
    calls the block size; ``settings.block_size`` is attention's before pages were made equal.
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


def plan_layout(
    model: ModelConfig, settings: LayoutSettings, profile: Profile = VLLM_0_25_1
) -> Layout:
    """Return the layout of a model on one rank.

    Raises
    ------
    ConfigError
        A setting out of range or not supported yet; pages that cannot be made equal; a pool too
        small for one request of the maximum length, in the engine's words.

    Source: spec/layout.md 1.
    """
    check_settings(settings, model.max_model_len)
    mode = resolve_cache_mode(model, settings.enable_prefix_caching, settings.mamba_cache_mode)
    settings = replace(
        settings,
        max_model_len=settings.max_model_len or model.max_model_len,
        enable_prefix_caching=mode.enable_prefix_caching,
        mamba_cache_mode=mode.mamba_cache_mode,
    )
    sizes, specs = _specs(model, settings, profile)
    limits = MemoryLimits(
        max_model_len=settings.max_model_len,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        mamba_cache_mode=mode.mamba_cache_mode,
        batches_in_flight=profile.batches_in_flight,
    )
    pool = plan_pool(specs, settings, limits, model.max_model_len, profile)
    return _assemble(model, settings, mode, sizes, limits, pool, profile)


def plan_pool(
    specs: Mapping[str, KVCacheSpec],
    settings: LayoutSettings,
    limits: MemoryLimits,
    longest: int,
    profile: Profile = VLLM_0_25_1,
) -> Pool:
    """Return the pool for given specs: groups, admission check, blocks, capacity.

    With an override the check goes by the memory that the overridden pool would have. ``longest``
    bounds the estimated model length. Source: spec/layout.md 6 to 9.
    """
    groups, lines = group_layers(specs, GROUPING_HEURISTICS[settings.grouping])
    memory = settings.kv_cache_memory_bytes
    num_blocks, override = num_blocks_in(groups, memory), settings.num_gpu_blocks_override
    if override is not None:
        lines.append(
            f"Overriding num_gpu_blocks={num_blocks} with num_gpu_blocks_override={override}"
        )
        num_blocks, memory = override, override * bytes_per_block(groups)
    check_admission(groups, limits, memory)
    capacity = capacity_of(groups, num_blocks, memory, limits, longest, profile)
    lines += capacity_lines(capacity, limits.max_model_len)
    return Pool(kv_cache_config(groups, num_blocks), capacity, tuple(lines))


def _specs(
    model: ModelConfig, settings: LayoutSettings, profile: Profile
) -> tuple[BlockSizes, dict[str, KVCacheSpec]]:
    """Block sizes and specs; ``settings`` has its length, caching and mode resolved."""
    dtype_bytes = model.dtype_bytes
    kv_bytes = kv_cache_dtype_bytes(settings.kv_cache_dtype, dtype_bytes)
    state_bytes = state_dtype_bytes(
        settings.mamba_cache_dtype, settings.mamba_ssm_cache_dtype, dtype_bytes
    )
    sizes = _block_sizes(model, settings, kv_bytes, state_bytes, profile)
    builder = SpecBuilder(
        sizes=sizes,
        window_block_size=profile.attention_kernel_block_size,
        kv_dtype_bytes=kv_bytes,
        state_dtype_bytes=state_bytes,
        mamba_cache_mode=settings.mamba_cache_mode,
    )
    return sizes, builder.specs_of(model)


def _block_sizes(
    model: ModelConfig,
    settings: LayoutSettings,
    kv_bytes: int,
    state_bytes: dict[str, int],
    profile: Profile,
) -> BlockSizes:
    kernel = profile.attention_kernel_block_size
    block_size = attention_block_size(settings.block_size, profile.default_block_size, kernel)
    if not model.has_recurrent:
        return BlockSizes(block_size, settings.mamba_block_size or block_size)
    recurrent = recurrent_block_size(
        settings.mamba_block_size,
        block_size,
        settings.max_model_len,
        enable_prefix_caching=settings.enable_prefix_caching,
    )
    sizes = BlockSizes(block_size, recurrent)
    attention = model.first_attention_layer
    if attention is None:
        return sizes
    state = next(la for la in model.layers if isinstance(la, RecurrentLayer))
    return align_pages(
        sizes,
        attention.kv_bytes_per_token(kv_bytes),
        state.state_bytes(state_bytes),
        kernel,
        settings.mamba_cache_mode,
    )


def _assemble(
    model: ModelConfig,
    settings: LayoutSettings,
    mode: CacheMode,
    sizes: BlockSizes,
    limits: MemoryLimits,
    pool: Pool,
    profile: Profile,
) -> Layout:
    config = pool.kv_cache_config
    groups = config.kv_cache_groups
    smallest = min(group.kv_cache_spec.block_size for group in groups)
    if mode.mamba_cache_mode == "align":
        check_align(smallest, settings.max_num_batched_tokens)
    scheduler, hashed = scheduler_and_hash_block_size(
        groups, settings.hash_block_size, enable_prefix_caching=mode.enable_prefix_caching
    )
    memory, reserved = settings.kv_cache_memory_bytes, profile.reserved_blocks
    return Layout(
        model=model,
        settings=replace(
            settings,
            block_size=sizes.block_size,
            mamba_block_size=sizes.mamba_block_size,
            hash_block_size=hashed,
        ),
        kv_cache_config=config,
        limits=limits,
        enable_prefix_caching=mode.enable_prefix_caching,
        mamba_cache_mode=mode.mamba_cache_mode,
        block_size=smallest,
        scheduler_block_size=scheduler,
        hash_block_size=hashed,
        page_size_bytes=groups[0].kv_cache_spec.page_size_bytes,
        bytes_per_block=bytes_per_block(groups),
        num_layers_longest_group=longest_group(groups),
        capacity=pool.capacity,
        waste=static_waste(config, limits, memory, reserved),
        log_lines=(*mode.log_lines, *sizes.log_lines, *pool.log_lines),
    )
