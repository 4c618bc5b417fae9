"""KVCacheManager: the only door through which the scheduler reaches the cache."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from sim.core.block_pool import BlockPool
from sim.core.eviction import FreeKVCacheBlockQueue, FreeQueuePolicy
from sim.core.hybrid_kv_cache_coordinator import HybridKVCacheCoordinator
from sim.core.kv_cache_coordinator import (
    CoordinatorSettings,
    KVCacheCoordinator,
    Rows,
)
from sim.core.prefix_cache_stats import PrefixCacheStats
from sim.core.unitary_kv_cache_coordinator import (
    KVCacheCoordinatorNoPrefixCache,
    UnitaryKVCacheCoordinator,
)
from sim.layout.kv_cache_config import KVCacheConfig, scheduler_view
from sim.layout.kv_cache_spec import (
    AttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    MemoryLimits,
)
from sim.observer import NULL_OBSERVER, Observer
from sim.request import Request, RequestStatus
from sim.units import cdiv


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

    Source: spec/manager.md 5 (vLLM 0.25.1 ``KVCacheManager``).
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
        fixes: Set[str] = frozenset(),
        decode_context_parallel_size: int = 1,
        prefill_context_parallel_size: int = 1,
        note_new_blocks: bool = True,
    ):
        if watermark < 0:
            raise ValueError(f"watermark is {watermark}, must not be negative")
        kv_cache_config = scheduler_view(kv_cache_config)
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        limits = MemoryLimits(
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens or max_model_len,
            batches_in_flight=batches_in_flight,
            decode_context_parallel_size=decode_context_parallel_size,
            prefill_context_parallel_size=prefill_context_parallel_size,
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
                fixes,
                note_new_blocks,
            ),
        )
        self.block_pool: BlockPool = self.coordinator.block_pool
        self.prefix_cache_stats = PrefixCacheStats()
        self.empty_kv_cache_blocks: Rows = tuple([] for _ in kv_cache_config.kv_cache_groups)
        self._last_lookup: _Lookup | None = None
        self._forgets_hint = "Q13" in fixes

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
            if self._forgets_hint:
                self.coordinator.num_uncached_common_prefix_tokens = 0
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
        max_length = request.num_tokens - 1
        rows, length = self.coordinator.find_longest_cache_hit(
            request.prefix_ids_by(1), max_length, request.prefix_ids_by
        )
        self.block_pool.observer.looked_up(request, max_length, length)
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
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
    ) -> Rows | None:
        """Return the new blocks by group, hits left out, or None if they are not there.

        ::

            | computed | new hits | external | new (drafts included) | lookahead |
            |   in the table ^    |       to allocate                            |
            |                     | registered up to request.num_tokens |

        External tokens were computed elsewhere; with delay_cache_blocks nothing is registered yet.
        reserved_blocks are left alone. num_encoder_tokens is for cross attention.

        Raises ValueError if there is nothing to allocate for. A None leaves everything as it was,
        except that blocks outside the window may have been freed.
        """
        if num_new_tokens < 1 and (num_new_tokens < 0 or num_external_computed_tokens < 1):
            raise ValueError(f"num_new_tokens is {num_new_tokens}, must be at least 1")
        computed = request.num_computed_tokens
        if (
            computed + num_new_tokens + num_lookahead_tokens < request.quiet_until
            and not (num_encoder_tokens or full_sequence_must_fit or reserved_blocks)
            and (not self.watermark_blocks or request.status is RequestStatus.RUNNING)
        ):
            return self.empty_kv_cache_blocks
        hits = self.empty_kv_cache_blocks if new_computed_blocks is None else new_computed_blocks
        request_id = request.request_id
        coordinator = self.coordinator
        local = computed + num_new_computed_tokens
        asked = local + num_external_computed_tokens
        total = min(asked, self.max_model_len)
        kept_free = self._watermark(request, has_scheduled_reqs)
        if full_sequence_must_fit and not self._fits(
            request, hits, total, kept_free, num_encoder_tokens
        ):
            return None
        main = total + num_new_tokens
        slots = min(main + num_lookahead_tokens, self.max_model_len)
        coordinator.remove_skipped_blocks(request_id, total, request.num_prompt_tokens)
        free = self.block_pool.get_num_free_blocks() - kept_free - reserved_blocks
        needed = coordinator.get_num_blocks_to_allocate(
            request_id, slots, hits, asked, main, num_encoder_tokens=num_encoder_tokens
        )
        if needed > free:
            return None
        if hits is not self.empty_kv_cache_blocks or num_external_computed_tokens > 0:
            coordinator.allocate_new_computed_blocks(
                request_id, hits, local, num_external_computed_tokens
            )
        new_blocks = coordinator.allocate_new_blocks(request_id, slots, main, num_encoder_tokens)
        if self.enable_caching and not delay_cache_blocks:
            coordinator.cache_blocks(request, min(main, request.num_tokens))
        request.quiet_until = coordinator.quiet_until(request_id, total)
        return new_blocks

    def _watermark(self, request: Request, has_scheduled_reqs: bool) -> int:
        waits = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return self.watermark_blocks if has_scheduled_reqs and waits else 0

    def _fits(
        self, request: Request, hits: Rows, total: int, kept_free: int, num_encoder_tokens: int
    ) -> bool:
        """Admission gate: whether there is room for all that is known of the request."""
        free = self.block_pool.get_num_free_blocks() - kept_free
        num_tokens = min(request.num_tokens, self.max_model_len)
        predict = self.coordinator.get_num_blocks_to_allocate
        args = (request.request_id, num_tokens, hits, total, num_tokens, True)
        # First a bound that costs nothing per hit.
        return (
            predict(*args, False, num_encoder_tokens) <= free
            and predict(*args, True, num_encoder_tokens) <= free
        )

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register the full blocks of so many tokens, as was delayed at their allocation."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    # -- giving back -----------------------------------------------------------------------
    def free(self, request: Request) -> None:
        """Give back all blocks of a request, the last of each table first."""
        request.quiet_until = 0
        self.coordinator.free(request.request_id)

    def pop_blocks_for_free(self, request: Request) -> list[int]:
        """Forget a request and return its blocks, null ones included, in order of the groups.

        They stay held until the caller gives them to ``block_pool.free_blocks``, reversed.
        """
        request.quiet_until = 0
        return self.coordinator.pop_blocks_for_free(request.request_id)

    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free what no later token of the request reads."""
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens, num_prompt_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks cache."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Empty the cache index if no block is in use; return whether that was so."""
        was_reset = self.block_pool.reset_prefix_cache()
        if was_reset:
            self.prefix_cache_stats.reset = True
        return was_reset

    # -- queries ---------------------------------------------------------------------------
    def get_block_ids(self, request_id: str) -> Rows:
        """Return the tables of a request, by group."""
        return self.coordinator.get_blocks(request_id)

    def get_block_ids_for_computed_tokens(self, request_id: str, num_computed_tokens: int) -> Rows:
        """Return the tables up to so many tokens; those of states and of an encoder whole."""
        tables = self.coordinator.get_blocks(request_id)
        groups = self.kv_cache_config.kv_cache_groups
        return tuple(
            table[: cdiv(num_computed_tokens, group.kv_cache_spec.block_size)]
            if _is_by_token(group.kv_cache_spec)
            else table
            for table, group in zip(tables, groups, strict=True)
        )

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks taken since the last call whose memory must be zeroed."""
        return self.coordinator.take_new_block_ids()

    def make_prefix_cache_stats(self) -> PrefixCacheStats:
        """Return the counts since the last call, and count from zero."""
        drained, self.prefix_cache_stats = self.prefix_cache_stats, PrefixCacheStats()
        return drained

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Leading blocks that all requests with blocks share, by group."""
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def new_step_starts(self) -> None:
        """A scheduling step begins."""
        self.coordinator.new_step_starts()


def _is_by_token(spec: object) -> bool:
    without = (CrossAttentionSpec, EncoderOnlyAttentionSpec)
    return isinstance(spec, AttentionSpec) and not isinstance(spec, without)


def get_kv_cache_coordinator(
    kv_cache_config: KVCacheConfig, settings: CoordinatorSettings
) -> KVCacheCoordinator:
    """Choose by caching and number of groups. Source: spec/manager.md 4."""
    if not settings.enable_caching:
        return KVCacheCoordinatorNoPrefixCache(kv_cache_config, settings)
    if len(kv_cache_config.kv_cache_groups) == 1:
        return UnitaryKVCacheCoordinator(kv_cache_config, settings)
    return HybridKVCacheCoordinator(kv_cache_config, settings)
