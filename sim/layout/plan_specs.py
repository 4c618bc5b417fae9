"""The layout of layers that are given one by one, without a model."""

from __future__ import annotations

from dataclasses import replace

from sim.errors import ConfigError
from sim.layout.block_size import BlockSizes
from sim.layout.kv_cache_spec import MambaSpec, MemoryLimits
from sim.layout.plan import Layers, Layout, LayoutSettings, assemble_layout, plan_pool
from sim.layout.settings import AUTO_FIT, check_settings
from sim.layout.specs_file import SpecsFile
from sim.models.model_config import ModelConfig, ModelDims
from sim.profiles import VLLM_0_25_1, Profile

_LENGTH_KEY = "scheduler.max_model_len"


def plan_specs(
    given: SpecsFile, settings: LayoutSettings, profile: Profile = VLLM_0_25_1
) -> Layout:
    """Return the layout of explicit layers: grouping and all that follows it.

    Block sizes and pages are what the file says; settings that would change them have no effect.
    Where neither user nor file says so, prefixes are cached unless a layer is recurrent.

    Raises
    ------
    ConfigError
        No maximum length; whatever the engine refuses.
    """
    length = settings.max_model_len
    if length in (None, AUTO_FIT):
        allowed = "a number of tokens: without a model there is no length to start from"
        raise ConfigError.one(_LENGTH_KEY, "missing" if length is None else length, allowed)
    check_settings(settings, length)
    layers = _layers(given, settings, length, profile)
    pool = plan_pool(layers.specs_by_worker, layers.settings, layers.limits, length, profile)
    return assemble_layout(_no_model(given.name, length), layers, pool, profile)


def _layers(given: SpecsFile, settings: LayoutSettings, length: int, profile: Profile) -> Layers:
    specs = {name: spec for own in given.specs_by_worker for name, spec in own.items()}
    recurrent = [spec for spec in specs.values() if isinstance(spec, MambaSpec)]
    mode = (settings.mamba_cache_mode or given.mamba_cache_mode or "none") if recurrent else "none"
    caching = settings.enable_prefix_caching
    attention = [spec.block_size for spec in specs.values() if not isinstance(spec, MambaSpec)]
    sizes = BlockSizes(
        block_size=min(attention, default=profile.default_block_size),
        mamba_block_size=min((spec.block_size for spec in recurrent), default=length),
    )
    settings = replace(
        settings,
        mamba_cache_mode=mode,
        enable_prefix_caching=(not recurrent or mode != "none") if caching is None else caching,
        disable_hybrid_kv_cache_manager=bool(settings.disable_hybrid_kv_cache_manager),
        block_size=sizes.block_size,
        mamba_block_size=sizes.mamba_block_size,
    )
    limits = MemoryLimits(
        max_model_len=length,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        mamba_cache_mode=mode,
        batches_in_flight=profile.batches_in_flight,
        max_num_encoder_input_tokens=settings.max_num_encoder_input_tokens
        or settings.max_num_batched_tokens,
        decode_context_parallel_size=settings.decode_context_parallel_size,
        prefill_context_parallel_size=settings.prefill_context_parallel_size,
    )
    return Layers(settings, limits, sizes, specs, given.specs_by_worker, ())


def _no_model(name: str, length: int) -> ModelConfig:
    """What stands in for the model: a name and a length."""
    return ModelConfig(
        name=name,
        architecture="explicit layers",
        max_model_len=length,
        dtype_bytes=2,
        layers=(),
        dims=ModelDims(0, 0, 0, 0, 0, 0),
    )
