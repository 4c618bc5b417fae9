"""The Python engine's side: as in ``tests.differential``, without what the compiled one never
tells, and with what is inside of both."""

from __future__ import annotations

from typing import Any

from sim.core.block_pool import NO_PREFIX, BlockPool
from sim.core.kv_cache_manager import KVCacheManager
from tests.differential.our_scheduler import OurScheduler, names
from tests.differential.ours import OurManager
from tests.differential.scheduler_side import SCHEDULER_SNAPSHOT, Step
from tests.differential.side import SNAPSHOT

REQUEST_FIELDS = (
    "num_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_draft_tokens",
    "async_tokens_to_discard",
    "is_prefill_chunk",
    "num_preemptions",
    "num_cached_tokens",
    "quiet_until",
    "ends_at",
)
INNER = ("block columns", "held", "cached and free", "align's notes", "made in this step")
MANAGER_FIELDS = (*SNAPSHOT, *INNER, "quiet")
SCHEDULER_FIELDS = (*SCHEDULER_SNAPSHOT, *INNER, "preemptions", "first tokens", "is awaited")
"""What is seen after every call of a manager's and of a scheduler's world."""

ENDED = (
    "ended"  # at EOS or at a limit: nobody asks, so the compiled engine does not tell them apart
)


def inner(manager: KVCacheManager, made: list[set[int]]) -> tuple[Any, ...]:
    """Return the state that no answer shows at once.

    Who took a block last is left out where it is free and empty: that decides nothing any more.
    """
    pool = manager.block_pool
    singles = manager.coordinator.single_type_managers
    return (
        [_column(pool, block_id) for block_id in range(1, pool.num_gpu_blocks)],
        list(pool.held_by_group),
        list(pool.cached_free_by_group),
        [_notes(single) for single in singles],
        made,
    )


def _column(pool: BlockPool, block_id: int) -> tuple[int, int]:
    prefix_id = pool.prefix_id[block_id]
    is_empty = prefix_id == NO_PREFIX and not pool.ref_cnt[block_id]
    return prefix_id, NO_PREFIX if is_empty else pool.group_id[block_id]


def _notes(single: Any) -> tuple[Any, ...]:
    if not hasattr(single, "last_state_block_idx"):
        return ()
    return dict(single.last_state_block_idx), set(single._allocated_block_reqs)


def made_in_this_step(manager: KVCacheManager) -> list[set[int]]:
    singles = manager.coordinator.single_type_managers
    return [set(getattr(single, "cached_blocks_this_step", ())) for single in singles]


def shown(ours: OurManager) -> tuple[Any, ...]:
    return OurManager.snapshot(ours)


class PythonManager(OurManager):
    """``OurManager`` that tells of an allocation only whether there was room."""

    name = "python"

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.requests: list[Any] = []

    def request(self, number: int) -> Any:
        self.requests.append(super().request(number))
        return self.requests[-1]

    def allocate(self, request: Any, num_new: int, rows: Any, **settings: Any) -> Any:
        return None if super().allocate(request, num_new, rows, **settings) is None else True

    def snapshot(self) -> tuple[Any, ...]:
        inside = inner(self.manager, made_in_this_step(self.manager))
        quiet = {r.request_id: r.quiet_until for r in self.requests}
        return *super().snapshot(), *inside, quiet


class PythonScheduler(OurScheduler):
    """``OurScheduler`` without new blocks, common prefixes and why a request ended."""

    name = "python"

    def schedule(self, throttle: bool) -> tuple[Any, Step]:
        output, step = super().schedule(throttle)
        step.new_block_ids, step.common, step.to_zero = {}, [], []
        return output, step

    first_tokens: tuple[str, ...] = ()
    is_awaited = False

    def update(self, handle: Any) -> Any:
        told, statistics = super().update(handle)
        self.first_tokens = tuple(names(handle.first_tokens))
        told = [(name, count, ENDED if reason else None) for name, count, reason in told]
        self.is_awaited = bool(self.first_tokens) or any(reason for *_, reason in told)
        return told, statistics

    def snapshot(self) -> tuple[Any, ...]:
        scheduler, manager = self.scheduler, self.manager
        return (
            *shown(self.ours),
            names(scheduler.waiting),
            names(scheduler.skipped_waiting),
            names(scheduler.running),
            {i: fields_of(r) for i, r in scheduler.requests.items()},
            *inner(manager, made_in_this_step(manager)),
            scheduler.num_preemptions,
            self.first_tokens,
            self.is_awaited,
        )


def fields_of(request: Any) -> tuple[Any, ...]:
    return request.status.name, *(getattr(request, name) for name in REQUEST_FIELDS)
