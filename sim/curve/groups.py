"""The groups of a model: what a pool of a given size is, and what serves from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sim.core.kv_cache_manager import KVCacheManager
from sim.curve.serial import ManagerServer, SerialServer
from sim.errors import ConfigError
from sim.jit import is_available
from sim.layout.kv_cache_spec import CrossAttentionSpec
from sim.layout.plan import Layout
from sim.layout_scenario import LayoutRequest
from sim.scheduler.limits import SchedulerLimits

_CORE = "engine.core"
_ANY_MEMORY = 2**59
"""Bytes that any model's layout fits in; the pool's size is set afterwards."""


@dataclass(frozen=True, slots=True)
class ModelGroups:
    """The groups of a model's layers on one pool of blocks.

    name : the model's; limits : of the scheduler
    settings : what was set otherwise than an engine would; retention_interval : in tokens, or None
    core : ``auto``, ``python`` or ``compiled``: who serves; it changes no number
    """

    name: str
    layout: Layout
    limits: SchedulerLimits
    settings: Mapping[str, Any] = field(default_factory=dict)
    retention_interval: int | None = None
    core: str = "auto"

    @property
    def num_groups(self) -> int:
        """Groups that draw from the pool."""
        return len(self.layout.kv_cache_config.kv_cache_groups)

    @property
    def block_size(self) -> int:
        """Tokens between two places where a hit may end."""
        return self.layout.scheduler_block_size

    @property
    def pool_blocks_per_chain_block(self) -> int:
        """Pool blocks that keep ``block_size`` tokens in every group [blocks]."""
        groups = self.layout.kv_cache_config.kv_cache_groups
        return sum(self.block_size // group.kv_cache_spec.block_size for group in groups)

    def num_blocks(self, num_bytes: int) -> int:
        """Return how many blocks a pool of so many bytes has, the null block included."""
        return num_bytes // self.layout.bytes_per_block

    def chain_capacity(self, num_bytes: int) -> int:
        """Return the blocks of one chain in the same memory: each is kept in every group."""
        return max(0, self.num_blocks(num_bytes) - 1) // self.pool_blocks_per_chain_block

    def bytes_of_chain(self, num_chain_blocks: int) -> int:
        """Return the least memory with room for so many blocks of one chain."""
        pool_blocks = num_chain_blocks * self.pool_blocks_per_chain_block + 1
        return pool_blocks * self.layout.bytes_per_block

    def server(self, num_bytes: int) -> SerialServer:
        """Return an empty cache of so many bytes that serves requests one at a time."""
        num_blocks, align = max(1, self.num_blocks(num_bytes)), self.align_block_size
        if not self.is_compiled:
            return ManagerServer(lambda: self.manager(num_blocks), self.limits, align)
        from sim.curve.compiled_server import CompiledServer

        return CompiledServer(self.manager(1), num_blocks, self.limits, align)

    @property
    def align_block_size(self) -> int | None:
        """Block size that prefill chunks must end on, in Mamba mode ``align``."""
        return self.layout.block_size if self.layout.mamba_cache_mode == "align" else None

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled manager serves."""
        if self.core == "python" or (self.core == "auto" and not is_available()):
            return False
        from sim.curve.compiled_server import has_compiled_half

        return has_compiled_half(self.manager(1))

    def manager(self, num_blocks: int) -> KVCacheManager:
        """Return an empty manager of so many blocks, the null block included."""
        layout = self.layout
        return KVCacheManager(
            replace(layout.kv_cache_config, num_blocks=num_blocks),
            max_model_len=layout.limits.max_model_len,
            scheduler_block_size=layout.scheduler_block_size,
            hash_block_size=layout.hash_block_size,
            max_num_batched_tokens=layout.limits.max_num_batched_tokens,
            retention_interval=self.retention_interval,
            batches_in_flight=layout.limits.batches_in_flight,
            note_new_blocks=False,
        )


def model_groups(model: str, keys: Mapping[str, Any]) -> ModelGroups:
    """Return the groups of a model under the engine's settings.

    keys : dotted keys of a scenario (``cache.block_size``) to values; none that sets the memory

    Raises
    ------
    ConfigError
        What ``kvsim layout`` refuses; a model whose prefixes are not cached.
    """
    request = LayoutRequest.of(model, None, keys)
    layout = request.plan({"kv_cache_memory_bytes": _ANY_MEMORY})
    scenario = request.scenario()
    limits = SchedulerLimits(
        max_num_batched_tokens=scenario.scheduler.max_num_batched_tokens,
        max_num_seqs=1,
        max_model_len=layout.limits.max_model_len,
        long_prefill_token_threshold=scenario.scheduler.long_prefill_token_threshold,
        enable_chunked_prefill=scenario.scheduler.enable_chunked_prefill,
    )
    groups = ModelGroups(
        request.name,
        layout,
        limits,
        {key: value for key, value in keys.items() if key != _CORE},
        scenario.cache.prefix_cache_retention_interval,
        scenario.engine.core,
    )
    _check(groups)
    return groups


def _check(groups: ModelGroups) -> None:
    if not groups.layout.enable_prefix_caching:
        allowed = "a model that caches prefixes (--enable-prefix-caching turns it on)"
        raise ConfigError.one("--model", groups.name, allowed)
    specs = [group.kv_cache_spec for group in groups.layout.kv_cache_config.kv_cache_groups]
    if any(isinstance(spec, CrossAttentionSpec) for spec in specs):
        raise ConfigError.one("--model", groups.name, "a model without an encoder")
    if groups.core == "compiled" and not groups.is_compiled:
        allowed = "auto or python: a kind of layer has no compiled half"
        raise ConfigError.one(_CORE, groups.core, allowed)
