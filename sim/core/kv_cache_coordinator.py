"""Coordinators: one request, several groups, one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.core.attention import get_manager_for_kv_cache_spec
from sim.core.block_pool import BlockPool
from sim.core.eviction import FreeKVCacheBlockQueue, FreeQueuePolicy
from sim.core.single_type_kv_cache_manager import NEVER, SingleTypeKVCacheManager
from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import KVCacheSpec, MambaSpec, MemoryLimits, SlidingWindowSpec
from sim.observer import NULL_OBSERVER, Observer
from sim.request import Request

Rows = tuple[list[int], ...]


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What a coordinator is built with, beside the layout.

    Block sizes in tokens; retention_interval None registers every reachable block, 0 keeps what an
    exact replay of a prompt needs, r keeps a checkpoint per r tokens as well.
    """

    limits: MemoryLimits
    scheduler_block_size: int
    hash_block_size: int
    enable_caching: bool = True
    use_eagle: bool = False
    retention_interval: int | None = None
    observer: Observer = NULL_OBSERVER
    free_queue: FreeQueuePolicy = FreeKVCacheBlockQueue


class KVCacheCoordinator:
    """Broadcasts to the managers of all groups, in group order, over one pool.

    Source: spec/manager.md 4.1 (vLLM 0.25.1 ``KVCacheCoordinator``).
    """

    num_uncached_common_prefix_tokens = 0

    def __init__(self, kv_cache_config: KVCacheConfig, settings: CoordinatorSettings):
        self.kv_cache_config = kv_cache_config
        self.scheduler_block_size = settings.scheduler_block_size
        self.hash_block_size = settings.hash_block_size
        self.enable_caching = settings.enable_caching
        self.retention_interval = settings.retention_interval
        groups = kv_cache_config.kv_cache_groups
        self._check_block_sizes([g.kv_cache_spec for g in groups])
        self._check_retention([g.kv_cache_spec for g in groups])
        self.block_pool = BlockPool(
            kv_cache_config.num_blocks,
            len(groups),
            settings.enable_caching,
            settings.observer,
            settings.free_queue,
        )
        self.single_type_managers: tuple[SingleTypeKVCacheManager, ...] = tuple(
            self._manager(group_id, group.kv_cache_spec, settings)
            for group_id, group in enumerate(groups)
        )
        flagged = {i for i, g in enumerate(groups) if g.is_eagle_group}
        self.eagle_group_ids = flagged or (set(range(len(groups))) if settings.use_eagle else set())
        self._factors = [m.block_size // self.hash_block_size for m in self.single_type_managers]

    def _manager(
        self, group_id: int, spec: KVCacheSpec, settings: CoordinatorSettings
    ) -> SingleTypeKVCacheManager:
        return get_manager_for_kv_cache_spec(
            spec,
            settings.limits,
            block_pool=self.block_pool,
            enable_caching=settings.enable_caching,
            kv_cache_group_id=group_id,
            scheduler_block_size=settings.scheduler_block_size,
        )

    def _check_block_sizes(self, specs: Sequence[KVCacheSpec]) -> None:
        for size in [self.hash_block_size, *(s.block_size for s in specs)]:
            if self.scheduler_block_size % size:
                raise ConfigError.one(
                    "scheduler_block_size", self.scheduler_block_size, f"a multiple of {size}"
                )

    def _check_retention(self, specs: Sequence[KVCacheSpec]) -> None:
        value = self.retention_interval
        key = "cache.prefix_cache_retention_interval"
        if value is None:
            return
        if not any(isinstance(s, (SlidingWindowSpec, MambaSpec)) for s in specs):
            raise ConfigError.one(key, value, "only for a sliding window or recurrent group")
        if value < 0 or value % self.scheduler_block_size:
            allowed = f"0 or a multiple of the scheduler block size {self.scheduler_block_size}"
            raise ConfigError.one(key, value, allowed)

    # -- lookup --------------------------------------------------------------------------
    def find_longest_cache_hit(
        self, prefix_ids: Sequence[int], max_cache_hit_length: int
    ) -> tuple[Rows, int]:
        """Return rows per group and the hit length in tokens. Mutates no block.

        prefix_ids : identities at the hash block size.
        """
        return tuple([] for _ in self.single_type_managers), 0

    # -- prediction and allocation ---------------------------------------------------------
    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Rows,
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        count_evictable: bool = True,
    ) -> int:
        """Sum of the groups' predictions."""
        return sum(
            manager.get_num_blocks_to_allocate(
                request_id,
                num_tokens,
                row,
                total_computed_tokens,
                num_tokens_main_model,
                apply_admission_cap,
                count_evictable,
            )
            for manager, row in zip(self.single_type_managers, new_computed_blocks, strict=True)
        )

    def allocate_new_computed_blocks(
        self, request_id: str, new_computed_blocks: Rows, num_computed_tokens: int
    ) -> None:
        """Begin the tables of a request with its hits, all groups before any allocation."""
        for manager, row in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.add_local_computed_blocks(request_id, row, num_computed_tokens)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> Rows:
        """Extend every table; return what was appended, by group."""
        return tuple(
            [
                manager.allocate_new_blocks(request_id, num_tokens, num_tokens_main_model)
                for manager in self.single_type_managers
            ]
        )

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register full blocks of the first ``num_computed_tokens`` tokens."""
        for group_id, manager in enumerate(self.single_type_managers):
            self._cache(manager, group_id, request, num_computed_tokens)

    def _cache(
        self, manager: SingleTypeKVCacheManager, group_id: int, request: Request, num_tokens: int
    ) -> None:
        manager.cache_blocks(
            request.request_id,
            request.prefix_ids_by(self._factors[group_id]),
            num_tokens,
            request.num_prompt_tokens,
            self.retention_interval,
        )

    def num_blocks_held(self, num_computed_tokens: int) -> int:
        """Blocks that a request needs at once, in all groups, to compute one more token."""
        return sum(m.num_blocks_held(num_computed_tokens) for m in self.single_type_managers)

    # -- broadcasts ------------------------------------------------------------------------
    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free what no later token of the request reads."""
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def free(self, request_id: str) -> None:
        """Give back all tables, group by group."""
        for manager in self.single_type_managers:
            manager.free(request_id)

    def new_step_starts(self) -> None:
        """A scheduling step begins."""
        for manager in self.single_type_managers:
            manager.new_step_starts()

    def get_blocks(self, request_id: str) -> Rows:
        """Return the tables of a request; empty lists if it has none."""
        return tuple(m.req_to_blocks.get(request_id, []) for m in self.single_type_managers)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Leading blocks that all requests with blocks share, by group."""
        return [
            m.get_num_common_prefix_blocks(running_request_id) for m in self.single_type_managers
        ]

    def quiet_until(self, request_id: str, num_computed_tokens: int) -> int:
        """Smallest token total at which a decoding request may change anything."""
        managers = self.single_type_managers
        first = min((m.quiet_until(request_id, num_computed_tokens) for m in managers), default=0)
        return min(first, self._next_registration(request_id)) if self.enable_caching else first

    def _next_registration(self, request_id: str) -> int:
        return min(
            (
                (m.num_cached_block.get(request_id, 0) + 1) * m.block_size
                for m in self.single_type_managers
            ),
            default=NEVER,
        )


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Any number of groups, nothing cached. Source: spec/manager.md 4.2."""

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Return zeros: without caching no block is shared."""
        return [0] * len(self.single_type_managers)


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """Exactly one group. Source: spec/manager.md 4.3, D.1."""

    def __init__(self, kv_cache_config: KVCacheConfig, settings: CoordinatorSettings):
        super().__init__(kv_cache_config, settings)
        (self._only,) = self.single_type_managers
        if self.hash_block_size != self._only.block_size:
            raise ConfigError.one(
                "hash_block_size", self.hash_block_size, f"{self._only.block_size}: the only group"
            )
        self._only.use_eagle = 0 in self.eagle_group_ids

    def find_longest_cache_hit(
        self, prefix_ids: Sequence[int], max_cache_hit_length: int
    ) -> tuple[Rows, int]:
        """Ask the only manager."""
        only = self._only
        rows = only.find_longest_cache_hit(
            prefix_ids, max_cache_hit_length, (0,), only.use_eagle, only.block_size
        )
        return rows, len(rows[0]) * only.block_size
