"""KVCacheManager: the only door through which the scheduler reaches the cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sim.core.block_pool import BlockPool
from sim.core.eviction import FreeKVCacheBlockQueue, FreeQueuePolicy
from sim.core.hybrid_kv_cache_coordinator import HybridKVCacheCoordinator
from sim.core.kv_cache_coordinator import (
    CoordinatorSettings,
    KVCacheCoordinator,
    KVCacheCoordinatorNoPrefixCache,
    Rows,
    UnitaryKVCacheCoordinator,
)
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import MemoryLimits
from sim.observer import NULL_OBSERVER, Observer
from sim.request import Request, RequestStatus


@dataclass(slots=True)
class PrefixCacheStats:
    """Tokens asked for and found, per lookup: each scheduling attempt counts again (Q5).

    Source: spec/manager.md 5.5.
    """

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """Count one lookup of a request of ``num_tokens`` known tokens."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


@dataclass(slots=True)
class _Lookup:
    """The last lookup, and whether the pool watches what it depends on."""

    request: Request
    num_tokens: int
    rows: Rows
    length: int
    uncached: int
    is_watched: bool = False


class KVCacheManager:
    """Answers two questions: what of a request is cached, and which blocks does it get.

    Blocks are ids, by group: ``tuple[list[int], ...]``, 0 for the null block. A shortage is None.

    Source: spec/manager.md 5 (vLLM 0.25.1 ``KVCacheManager``), without external tokens.
    Deviation: a lookup that is repeated while nothing it depends on has changed is remembered;
    statistics still count every attempt.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        max_num_batched_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        watermark: float = 0.0,
        retention_interval: int | None = None,
        observer: Observer = NULL_OBSERVER,
        free_queue: FreeQueuePolicy = FreeKVCacheBlockQueue,
        batches_in_flight: int = 1,
    ):
        if watermark < 0:
            raise ValueError(f"watermark is {watermark}, must not be negative")
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        limits = MemoryLimits(
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens or max_model_len,
            batches_in_flight=batches_in_flight,
        )
        self.coordinator = get_kv_cache_coordinator(
            kv_cache_config,
            CoordinatorSettings(
                limits,
                scheduler_block_size,
                hash_block_size,
                enable_caching,
                use_eagle,
                retention_interval,
                observer,
                free_queue,
            ),
        )
        self.block_pool: BlockPool = self.coordinator.block_pool
        self.prefix_cache_stats = PrefixCacheStats()
        self.empty_kv_cache_blocks: Rows = tuple([] for _ in kv_cache_config.kv_cache_groups)
        self._last_lookup: _Lookup | None = None

    @property
    def usage(self) -> float:
        """Share of the usable blocks that have a holder, 0 to 1."""
        return self.block_pool.get_usage()

    # -- lookup --------------------------------------------------------------------------
    def get_computed_blocks(self, request: Request) -> tuple[Rows, int]:
        """Return cached blocks by group and the hit in tokens, at most ``num_tokens - 1``.

        The last token is always computed, for its logits. Nothing is touched: allocate before
        anything else allocates. Mutates the statistics only.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0
        lookup = self._remembered(request) or self._look_up(request)
        self.coordinator.num_uncached_common_prefix_tokens = lookup.uncached
        self.prefix_cache_stats.record(
            request.num_tokens, lookup.length, preempted=request.num_preemptions > 0
        )
        return lookup.rows, lookup.length

    def _remembered(self, request: Request) -> _Lookup | None:
        last = self._last_lookup
        if last is None or last.request is not request or last.num_tokens != request.num_tokens:
            return None
        if last.is_watched and not self.block_pool.watch_is_stale:
            return last
        # The request waits: from now on it pays to know when the answer may change.
        if last.is_watched:
            self.block_pool.watch_is_stale = False
        else:
            size = self.coordinator.hash_block_size
            self.block_pool.watch(request.prefix_ids[: request.num_tokens // size])
        fresh = self._look_up(request)
        fresh.is_watched = True
        return fresh

    def _look_up(self, request: Request) -> _Lookup:
        rows, length = self.coordinator.find_longest_cache_hit(
            request.prefix_ids, request.num_tokens - 1
        )
        if not any(rows):
            rows = self.empty_kv_cache_blocks
        uncached = self.coordinator.num_uncached_common_prefix_tokens
        self._last_lookup = _Lookup(request, request.num_tokens, rows, length, uncached)
        return self._last_lookup

    # -- allocation ------------------------------------------------------------------------
    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Rows | None = None,
        num_lookahead_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        has_scheduled_reqs: bool = True,
    ) -> Rows | None:
        """Return the new blocks by group, hits left out, or None if they are not there.

        ::

            | computed | new hits | new (drafts included) | lookahead |
            |  in the table  ^      ^ to allocate                     |
            |                | registered up to request.num_tokens |

        Raises ValueError if num_new_tokens is below 1. A None leaves everything as it was, except
        that blocks outside the window may have been freed.
        """
        if num_new_tokens < 1:
            raise ValueError(f"num_new_tokens is {num_new_tokens}, must be at least 1")
        computed = request.num_computed_tokens
        if computed + num_new_tokens < request.quiet_until and not num_lookahead_tokens:
            return self.empty_kv_cache_blocks
        hits = self.empty_kv_cache_blocks if new_computed_blocks is None else new_computed_blocks
        request_id = request.request_id
        coordinator = self.coordinator
        total = min(computed + num_new_computed_tokens, self.max_model_len)
        reserved = self._watermark(request, has_scheduled_reqs)
        free = self.block_pool.get_num_free_blocks() - reserved
        if full_sequence_must_fit and not self._fits(request, hits, total, free):
            return None
        main = total + num_new_tokens
        slots = min(main + num_lookahead_tokens, self.max_model_len)
        coordinator.remove_skipped_blocks(request_id, total)
        free = self.block_pool.get_num_free_blocks() - reserved
        if coordinator.get_num_blocks_to_allocate(request_id, slots, hits, total, main) > free:
            return None
        if hits is not self.empty_kv_cache_blocks:
            coordinator.allocate_new_computed_blocks(request_id, hits, total)
        new_blocks = coordinator.allocate_new_blocks(request_id, slots, main)
        if self.enable_caching:
            coordinator.cache_blocks(request, min(main, request.num_tokens))
        request.quiet_until = coordinator.quiet_until(request_id, total)
        return new_blocks

    def _watermark(self, request: Request, has_scheduled_reqs: bool) -> int:
        waits = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return self.watermark_blocks if has_scheduled_reqs and waits else 0

    def _fits(self, request: Request, hits: Rows, total: int, free: int) -> bool:
        """Admission gate: whether there is room for all that is known of the request."""
        num_tokens = min(request.num_tokens, self.max_model_len)
        predict = self.coordinator.get_num_blocks_to_allocate
        args = (request.request_id, num_tokens, hits, total, num_tokens, True)
        return predict(*args, count_evictable=False) <= free and predict(*args) <= free

    # -- giving back -----------------------------------------------------------------------
    def free(self, request: Request) -> None:
        """Give back all blocks of a request, the last of each table first."""
        request.quiet_until = 0
        self.coordinator.free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free what no later token of the request reads."""
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks cache."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Empty the cache index if no block is in use; return whether that was so."""
        return self.block_pool.reset_prefix_cache()

    # -- queries ---------------------------------------------------------------------------
    def get_block_ids(self, request_id: str) -> Rows:
        """Return the tables of a request, by group."""
        return self.coordinator.get_blocks(request_id)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Leading blocks that all requests with blocks share, by group."""
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def new_step_starts(self) -> None:
        """A scheduling step begins."""
        self.coordinator.new_step_starts()


def get_kv_cache_coordinator(
    kv_cache_config: KVCacheConfig, settings: CoordinatorSettings
) -> KVCacheCoordinator:
    """Choose by caching and number of groups. Source: spec/manager.md 4."""
    if not settings.enable_caching:
        return KVCacheCoordinatorNoPrefixCache(kv_cache_config, settings)
    if len(kv_cache_config.kv_cache_groups) == 1:
        return UnitaryKVCacheCoordinator(kv_cache_config, settings)
    return HybridKVCacheCoordinator(kv_cache_config, settings)
