"""Coordinators: one request, several groups, one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import lcm

from sim.core.attention import get_manager_for_kv_cache_spec
from sim.core.block_pool import BlockPool
from sim.core.eviction import FreeKVCacheBlockQueue, FreeQueuePolicy
from sim.core.single_type_kv_cache_manager import NEVER, SingleTypeKVCacheManager
from sim.errors import ConfigError, InvariantError
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import KVCacheSpec, MambaSpec, MemoryLimits, SlidingWindowSpec
from sim.observer import NULL_OBSERVER, Observer
from sim.request import Request

Rows = tuple[list[int], ...]
Coarse = Callable[[int], Sequence[int]]
"""Identities of a request at so many hash blocks each (``Request.prefix_ids_by``)."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What a coordinator is built with, beside the layout.

    Block sizes in tokens; retention_interval None registers every reachable block, 0 keeps what an
    exact replay of a prompt needs, r keeps a checkpoint per r tokens as well. fixes names the
    reference's defects that are mended (``sim.compat``). note_new_blocks: whether new block ids
    are collected for ``take_new_block_ids``.
    """

    limits: MemoryLimits
    scheduler_block_size: int
    hash_block_size: int
    enable_caching: bool = True
    use_eagle: bool = False
    retention_interval: int | None = None
    observer: Observer = NULL_OBSERVER
    free_queue: FreeQueuePolicy = FreeKVCacheBlockQueue
    fixes: Set[str] = frozenset()
    note_new_blocks: bool = True


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
            settings.hash_block_size,
        )
        self.single_type_managers: tuple[SingleTypeKVCacheManager, ...] = tuple(
            self._manager(group_id, group.kv_cache_spec, settings)
            for group_id, group in enumerate(groups)
        )
        flagged = {i for i, g in enumerate(groups) if g.is_eagle_group}
        self.eagle_group_ids = flagged or (set(range(len(groups))) if settings.use_eagle else set())
        if "Q1" in settings.fixes:
            self.eagle_group_ids -= {
                i for i, m in enumerate(self.single_type_managers) if not m.honours_eagle_drop
            }
        self._factors = [m.block_size // self.hash_block_size for m in self.single_type_managers]
        self._reads_encoder = any(m.reads_encoder for m in self.single_type_managers)

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
            context_parallel_size=settings.limits.context_parallel_size,
            fixes=settings.fixes,
            note_new_blocks=settings.note_new_blocks,
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
        self,
        prefix_ids: Sequence[int],
        max_cache_hit_length: int,
        coarse: Coarse | None = None,
    ) -> tuple[Rows, int]:
        """Return rows per group and the hit length in tokens. Mutates no block.

        prefix_ids : identities at the hash block size.
        coarse : the same at larger blocks, where somebody keeps them.
        """
        return tuple([] for _ in self.single_type_managers), 0

    def find_longest_cache_hit_per_group(
        self, prefix_ids: Sequence[int], max_cache_hit_length: int
    ) -> tuple[Rows, list[int]]:
        """Return rows and hit length of each group by itself, not what they agree on."""
        rows, length = self.find_longest_cache_hit(prefix_ids, max_cache_hit_length)
        return rows, [length] * len(rows)

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
        num_encoder_tokens: int = 0,
    ) -> int:
        """Sum of the groups' predictions."""
        if self._reads_encoder:
            return self._predict_with_encoder(
                (request_id, num_tokens, total_computed_tokens, num_tokens_main_model),
                new_computed_blocks,
                num_encoder_tokens,
                (apply_admission_cap, count_evictable),
            )
        args = (total_computed_tokens, num_tokens_main_model, apply_admission_cap)
        total = 0
        for lane in self._lanes:
            row = new_computed_blocks[lane[0].kv_cache_group_id]
            if row and count_evictable:
                total += sum(
                    m.get_num_blocks_to_allocate(
                        request_id, num_tokens, new_computed_blocks[m.kv_cache_group_id], *args
                    )
                    for m in lane
                )
            else:
                total += len(lane) * lane[0].get_num_blocks_to_allocate(
                    request_id, num_tokens, row, *args, count_evictable
                )
        return total

    def _predict_with_encoder(
        self,
        decoder: tuple[str, int, int, int],
        new_computed_blocks: Rows,
        num_encoder_tokens: int,
        flags: tuple[bool, bool],
    ) -> int:
        """The same where some groups hold the encoder's tokens, of which none is computed."""
        request_id, num_tokens, computed, main = decoder
        total = 0
        for manager, row in zip(self.single_type_managers, new_computed_blocks, strict=True):
            args = (num_tokens, row, computed, main)
            if manager.reads_encoder:
                args = (num_encoder_tokens, [], 0, num_encoder_tokens)
            total += manager.get_num_blocks_to_allocate(request_id, *args, *flags)
        return total

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Rows,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int = 0,
    ) -> None:
        """Begin the tables of a request: first the hits of all groups, then blocks to be filled.

        So the blocks that one group takes for tokens computed elsewhere are never another's hits.
        A request that has tables keeps them; then there may be no hits.
        """
        managers = self.single_type_managers
        if any(request_id in manager.num_cached_block for manager in managers):
            if any(new_computed_blocks):
                raise InvariantError(f"request {request_id} has blocks already, hits come first")
            return
        total = num_local_computed_tokens + num_external_computed_tokens
        for manager, row in zip(managers, new_computed_blocks, strict=True):
            manager.add_local_computed_blocks(request_id, row, total)
        if num_external_computed_tokens > 0:
            for manager in managers:
                manager.allocate_external_computed_blocks(
                    request_id, num_local_computed_tokens, num_external_computed_tokens
                )

    def allocate_new_blocks(
        self,
        request_id: str,
        num_tokens: int,
        num_tokens_main_model: int,
        num_encoder_tokens: int = 0,
    ) -> Rows:
        """Extend every table; return what was appended, by group."""
        if self._reads_encoder:
            main = num_tokens_main_model
            decoder, encoder = (num_tokens, main), (num_encoder_tokens, num_encoder_tokens)
            return tuple(
                m.allocate_new_blocks(request_id, *(encoder if m.reads_encoder else decoder))
                for m in self.single_type_managers
            )
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

    # -- what a request needs ----------------------------------------------------------------
    def num_blocks_held(
        self,
        num_computed_tokens: int,
        num_new_tokens: int = 1,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
    ) -> int:
        """Blocks that a request needs at once, in all groups, to compute so many more tokens."""
        args = (num_computed_tokens, num_new_tokens, num_prompt_tokens, num_encoder_tokens)
        return sum(m.num_blocks_held(*args) for m in self.single_type_managers)

    def most_blocks_held(
        self,
        first: int,
        last: int,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
    ) -> int:
        """Most blocks at once while tokens first to last (not last) are computed one by one.

        A group takes a block only where one of its blocks begins, and what it holds repeats but
        for its growth; so only the beginnings of blocks in the last period count.
        """
        managers = self.single_type_managers
        if not managers or first >= last:
            return 0
        period = lcm(*(m.held_period for m in managers))
        first = max(first, last - period)
        starts = {first}
        for size in {m.block_size for m in managers}:
            starts.update(range(first + -first % size, last, size))
        args = (1, num_prompt_tokens, num_encoder_tokens)
        return max(self.num_blocks_held(start, *args) for start in starts)

    @property
    def num_permanent_blocks(self) -> int:
        """Blocks that were taken when the managers were built and never come back."""
        return sum(len(m.permanent_blocks) for m in self.single_type_managers)

    # -- broadcasts ------------------------------------------------------------------------
    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free what no later token of the request reads."""
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, total_computed_tokens, num_prompt_tokens)

    def pop_blocks_for_free(self, request_id: str) -> list[int]:
        """Forget a request and return its tables, one after the other; their blocks stay held."""
        return [b for m in self.single_type_managers for b in m.pop_blocks_for_free(request_id)]

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks taken since the last call whose memory must be zeroed."""
        return [b for m in self.single_type_managers for b in m.take_new_block_ids()]

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
        leaders = [lane[0] for lane in self._lanes]
        first = min([m.quiet_until(request_id, num_computed_tokens) for m in leaders], default=0)
        return min(first, self._next_registration(request_id)) if self.enable_caching else first

    def _next_registration(self, request_id: str) -> int:
        return min(
            [
                (lane[0].num_cached_block.get(request_id, 0) + 1) * lane[0].block_size
                for lane in self._lanes
            ],
            default=NEVER,
        )

    @cached_property
    def _lanes(self) -> list[list[SingleTypeKVCacheManager]]:
        """Managers by equal rules: their tables of a request have equal lengths and equal nulls.

        So what is asked of lengths alone is asked of the first of a lane.
        """
        lanes: list[list[SingleTypeKVCacheManager]] = []
        for manager in self.single_type_managers:
            lane = next((lane for lane in lanes if manager.is_like(lane[0])), None)
            if lane is None:
                lanes.append([manager])
            else:
                lane.append(manager)
        return lanes
