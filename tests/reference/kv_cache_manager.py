"""The door of the scheduler, without external tokens. Source: spec/manager.md 5."""

from __future__ import annotations

from dataclasses import dataclass

from sim.layout.kv_cache_config import KVCacheConfig
from sim.observer import NULL_OBSERVER, Observer
from sim.request import Request, RequestStatus
from tests.reference.coordinator import Rows, make_coordinator


@dataclass
class PrefixCacheStats:
    """Tokens asked for and found, by lookup attempt (5.5)."""

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class KVCacheManager:
    """Look up, allocate, free; everything else is bookkeeping below."""

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
    ):
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self.coordinator = make_coordinator(
            kv_cache_config,
            max_model_len,
            max_model_len if max_num_batched_tokens is None else max_num_batched_tokens,
            use_eagle,
            enable_caching,
            scheduler_block_size,
            hash_block_size,
            retention_interval,
            observer,
            enable_caching=enable_caching,
        )
        self.block_pool = self.coordinator.block_pool
        self.prefix_cache_stats = PrefixCacheStats()
        # Of the last successful allocation: blocks predicted, blocks that left the free queue.
        self.last_prediction = 0, 0

    @property
    def usage(self) -> float:
        return self.block_pool.get_usage()

    def _no_hits(self) -> Rows:
        return tuple([] for _ in self.coordinator.single_type_managers)

    def get_computed_blocks(self, request: Request) -> tuple[Rows, int]:
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self._no_hits(), 0
        rows, length = self.coordinator.find_longest_cache_hit(
            request.prefix_ids, request.num_tokens - 1
        )
        self.prefix_cache_stats.record(request.num_tokens, length, request.num_preemptions > 0)
        return rows, length

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
        if num_new_tokens <= 0:
            raise ValueError(f"num_new_tokens is {num_new_tokens}")
        hits = new_computed_blocks if new_computed_blocks is not None else self._no_hits()
        local = request.num_computed_tokens + num_new_computed_tokens
        total = min(local, self.max_model_len)
        free = self.block_pool.get_num_free_blocks() - self._watermark(request, has_scheduled_reqs)
        whole = min(request.num_tokens, self.max_model_len)
        if full_sequence_must_fit and (
            self._predict(request, whole, hits, total, whole, True) > free
        ):
            return None
        main = total + num_new_tokens
        slots = min(main + num_lookahead_tokens, self.max_model_len)
        self.coordinator.remove_skipped_blocks(request.request_id, total)
        predicted = self._predict(request, slots, hits, local, main, False)
        free_before = self.block_pool.get_num_free_blocks()
        if predicted > free_before - self._watermark(request, has_scheduled_reqs):
            return None
        if any(hits):
            self.coordinator.allocate_new_computed_blocks(request.request_id, hits, local)
        new = self.coordinator.allocate_new_blocks(request.request_id, slots, main)
        self.last_prediction = predicted, free_before - self.block_pool.get_num_free_blocks()
        if self.enable_caching:
            known = min(total + num_new_tokens, request.num_tokens)
            self.coordinator.cache_blocks(request, known)
        return new

    def _watermark(self, request: Request, has_scheduled_reqs: bool) -> int:
        waits = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return self.watermark_blocks if has_scheduled_reqs and waits else 0

    def _predict(self, request: Request, num_tokens, hits, computed, main, capped) -> int:
        return self.coordinator.get_num_blocks_to_allocate(
            request.request_id, num_tokens, hits, computed, main, capped
        )

    def free(self, request: Request) -> None:
        self.coordinator.free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens)

    def evict_blocks(self, block_ids) -> None:
        self.block_pool.evict_blocks(list(block_ids))

    def reset_prefix_cache(self) -> bool:
        return self.block_pool.reset_prefix_cache()

    def new_step_starts(self) -> None:
        self.coordinator.new_step_starts()

    def get_num_common_prefix_blocks(self, request_id: str) -> list[int]:
        return self.coordinator.get_num_common_prefix_blocks(request_id)

    def get_block_ids(self, request_id: str) -> Rows:
        managers = self.coordinator.single_type_managers
        return tuple(list(m.req_to_blocks.get(request_id, [])) for m in managers)
