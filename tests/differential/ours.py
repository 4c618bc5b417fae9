"""Our side of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from sim.core.block_metrics import BlockMetrics
from sim.core.block_pool import BlockPool
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.kv_events import KVEventLog
from sim.core.request_content import RequestContent
from sim.errors import ConfigError, InvariantError
from sim.observer import NULL_OBSERVER
from sim.observers import together
from sim.request import Request, RequestStatus
from tests.differential.side import ManagerSide, Rows
from tests.differential.specs import kv_cache_config
from tests.differential.world import Content, World, num_prompt_tokens

ERRORS = (InvariantError, ConfigError, ValueError, NotImplementedError)


def plain(rows: Any) -> Rows | None:
    return None if rows is None else tuple(list(row) for row in rows)


class OurManager(ManagerSide):
    """sim.core.kv_cache_manager.KVCacheManager."""

    name = "ours"

    def __init__(self, world: World, content: Content, fixes: frozenset[str] = frozenset()):
        self.world, self.content = world, content
        config = kv_cache_config(world)
        self.log = None
        if world.events and world.enable_caching:
            self.log = KVEventLog(
                config,
                world.hash_size,
                self._content,
                context_parallel_size=world.dcp * world.pcp,
            )
        self.metrics = (
            BlockMetrics(1.0, lambda: 0.5, world.enable_caching) if world.metrics else None
        )
        self.manager = KVCacheManager(
            config,
            world.max_model_len,
            world.scheduler_block_size,
            world.hash_size,
            max_num_batched_tokens=world.max_num_batched_tokens,
            enable_caching=world.enable_caching,
            use_eagle=world.use_eagle,
            watermark=world.watermark,
            retention_interval=world.retention,
            observer=together([self.log or NULL_OBSERVER, self.metrics or NULL_OBSERVER]),
            fixes=fixes,
            decode_context_parallel_size=world.dcp,
            prefill_context_parallel_size=world.pcp,
        )

    # -- requests --------------------------------------------------------------------------
    def request(self, number: int) -> Request:
        told = self.world.requests[number]
        return Request(
            f"r{number}",
            num_prompt_tokens(told),
            told["max_tokens"],
            self.content.prefix_ids[number],
            skip_reading_prefix_cache=bool(told.get("skip")),
        )

    def append(self, number: int, request: Request, count: int) -> None:
        request.num_tokens += count

    def set_status(self, request: Request, status: str) -> None:
        request.status = RequestStatus[status]

    # -- calls -----------------------------------------------------------------------------
    def look_up(self, request: Request) -> tuple[Any, Rows, int]:
        rows, hit = self.manager.get_computed_blocks(request)
        return rows, plain(rows), hit

    def look_up_direct(self, request: Request, max_length: int, per_group: bool) -> Any:
        coordinator = self.manager.coordinator
        if per_group:
            rows, lengths = coordinator.find_longest_cache_hit_per_group(
                request.prefix_ids, max_length
            )
            return plain(rows), list(lengths)
        rows, length = coordinator.find_longest_cache_hit(request.prefix_ids, max_length)
        return plain(rows), length

    def allocate(self, request: Request, num_new: int, rows: Any, **settings: Any) -> Rows | None:
        return plain(
            self.manager.allocate_slots(request, num_new, new_computed_blocks=rows, **settings)
        )

    def partial(self, request: Request, group_id: int, block_id: int, num_tokens: int) -> Any:
        return self.manager.block_pool.cache_partial_block(
            request.request_id,
            block_id,
            num_tokens,
            request.prefix_ids,
            group_id,
            self.manager.coordinator.single_type_managers[group_id].block_size,
        )

    def free_ids(self, block_ids: list[int]) -> None:
        self.manager.block_pool.free_blocks(block_ids)

    def free(self, request: Request) -> None:
        self.manager.free(request)

    def pop_for_free(self, request: Request) -> list[int]:
        return list(self.manager.pop_blocks_for_free(request))

    def take_stats(self) -> tuple[int, ...]:
        return stats_of(self.manager.make_prefix_cache_stats())

    def take_new_block_ids(self) -> list[int]:
        return list(self.manager.take_new_block_ids())

    # -- everything that can be seen -----------------------------------------------------------
    def snapshot(self) -> tuple[Any, ...]:
        manager = self.manager
        pool, coordinator = manager.block_pool, manager.coordinator
        groups = coordinator.single_type_managers
        return (
            list(pool.free_block_queue.get_all_free_blocks()),
            list(pool.ref_cnt)[1:],
            index_of(pool),
            [{i: list(t) for i, t in g.req_to_blocks.items() if t} for g in groups],
            [{i: n for i, n in g.num_cached_block.items() if n} for g in groups],
            stats_of(manager.prefix_cache_stats),
            coordinator.num_uncached_common_prefix_tokens,
            float(manager.usage),
            self.events(),
            [tuple(e) for e in self.metrics.drain_events()] if self.metrics else [],
        )

    def at(self, now_ns: int) -> None:
        if self.metrics:
            self.metrics.at(now_ns)

    def _content(self, request_id: str) -> RequestContent:
        return self.content.of(self.world, int(request_id[1:]))

    def events(self) -> list[tuple[Any, ...]]:
        if self.log is None:
            return []
        return in_order(self.world, [event_of(e) for e in self.log.take_events()])


def index_of(pool: BlockPool) -> dict[tuple[int, int], list[int]]:
    """Return the blocks of every (group, identity), the earliest registered first."""
    found = {}
    for group_id, (index, duplicates) in enumerate(
        zip(pool.cached_blocks, pool.duplicates, strict=True)
    ):
        for prefix_id, block_id in index.items():
            found[group_id, prefix_id] = [block_id, *duplicates.get(prefix_id, ())]
    return found


def event_of(event: Any, name: Callable[[Any], int] = int) -> tuple[Any, ...]:
    """Return an event of either side as a tuple; ``name`` turns its hashes into identities."""
    kind = type(event).__name__
    if kind == "AllBlocksCleared":
        return (kind,)
    hashes = [name(h) for h in event.block_hashes]
    if kind == "BlockRemoved":
        return kind, event.group_idx, event.medium, hashes
    parent = event.parent_block_hash
    return (
        kind,
        event.group_idx,
        event.medium,
        hashes,
        None if parent is None else name(parent),
        list(event.token_ids),
        event.block_size,
        event.lora_name,
        event.extra_keys,
        event.kv_cache_spec_kind,
        event.kv_cache_spec_sliding_window,
    )


def in_order(world: World, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort removals that follow each other, where partial entries were made.

    The reference keeps the aliases of a block in a set, so they leave in no particular order.
    """
    if not world.has_partial_entries:
        return events
    ordered: list[tuple[Any, ...]] = []
    for is_removal, group in groupby(events, lambda e: e[0] == "BlockRemoved"):
        run = list(group)
        ordered += sorted(run) if is_removal else run
    return ordered


def stats_of(stats: Any) -> tuple[int, ...]:
    return (
        stats.requests,
        stats.queries,
        stats.hits,
        stats.preempted_requests,
        stats.preempted_queries,
        stats.preempted_hits,
    )
