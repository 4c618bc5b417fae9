"""The state of the compiled scheduler, as arrays, and how it is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sim.core.kv_cache_state_compiled import Manager

LIMITS = np.dtype(
    [
        ("max_num_batched_tokens", "i8"),
        ("max_num_seqs", "i8"),
        ("max_model_len", "i8"),
        ("long_prefill_token_threshold", "i8"),
        ("enable_chunked_prefill", "i8"),
        ("scheduler_reserve_full_isl", "i8"),
        ("mamba_align_block_size", "i8"),  # 0: chunks end anywhere
        ("async_scheduling", "i8"),
        ("is_priority", "i8"),
    ],
    align=True,
)
"""``SchedulerLimits`` and what else a scheduler is told."""

COUNTERS = np.dtype(
    [
        ("num_requests", "i8"),  # that have not ended
        ("num_running", "i8"),
        ("num_waiting", "i8"),
        ("waiting_head", "i8"),
        ("waiting_tail", "i8"),
        ("num_preemptions", "i8"),
        ("num_ended", "i8"),  # in the list of those that ended
        ("num_first_tokens", "i8"),  # in the list of those with a first token
        ("batch", "i8"),  # the batch in the making
        ("budget", "i8"),  # of the step in the making
        ("place", "i8"),  # the running request that comes next
        ("num_preempted", "i8"),  # in the step in the making
        ("last_preempted", "i8"),
        ("now_ns", "i8"),
    ],
    align=True,
)
"""The scheduler's scalars."""

CHUNK, LAST_CHUNK = 1, 2
"""Flags of a scheduled request: it samples nothing; it completes the prefill."""


class Batch(NamedTuple):
    """Scheduled steps, row by row in scheduling order; shapes: N batches, S requests.

    length : int64 (N,), requests in it
    request, serial : int32, int64 (N, S), whose row it is
    computed, num_new : int64 (N, S), tokens before the step and in it
    is_decode, flags : uint8 (N, S)
    """

    length: np.ndarray
    request: np.ndarray
    serial: np.ndarray
    computed: np.ndarray
    num_new: np.ndarray
    is_decode: np.ndarray
    flags: np.ndarray


class Scheduler(NamedTuple):
    """All that the scheduler works on.

    running : int32 (max_num_seqs + 1,), in order of admission
    heap : int32 (R,), the waiting requests by priority
    ended, first_tokens : int32 (R,), records of requests since Python looked last
    """

    manager: Manager
    limits: np.ndarray
    counters: np.ndarray
    running: np.ndarray
    heap: np.ndarray
    ended: np.ndarray
    first_tokens: np.ndarray
    batch: Batch


NUM_BATCHES = 2


def new_scheduler(scheduler: Any, manager: Manager) -> Scheduler:
    """Return the compiled counterpart of a scheduler that has served nothing yet."""
    limits = np.zeros(1, LIMITS).view(np.recarray)
    for name in LIMITS.names[:6]:
        limits[name] = getattr(scheduler.limits, name)
    limits.mamba_align_block_size = scheduler.mamba_align_block_size or 0
    limits.async_scheduling = scheduler.async_scheduling
    limits.is_priority = scheduler.policy.name == "priority"
    counters = np.zeros(1, COUNTERS).view(np.recarray)
    counters.waiting_head = counters.waiting_tail = -1
    num_seqs, num_requests = scheduler.limits.max_num_seqs, len(manager.requests)
    shape = (NUM_BATCHES, min(num_seqs, scheduler.limits.max_num_batched_tokens) + 1)
    batch = Batch(
        np.zeros(NUM_BATCHES, np.int64),
        np.zeros(shape, np.int32),
        *(np.zeros(shape, np.int64) for _ in range(3)),
        *(np.zeros(shape, np.uint8) for _ in range(2)),
    )
    lists = (np.zeros(num_requests, np.int32) for _ in range(3))
    return Scheduler(manager, limits, counters, np.zeros(num_seqs + 1, np.int32), *lists, batch)


def with_manager(state: Scheduler, manager: Manager) -> Scheduler:
    """Return the state with a manager that has grown, and with lists as long as its records."""
    num_requests, before = len(manager.requests), len(state.heap)
    if num_requests == before:
        return state._replace(manager=manager)
    lists = {}
    for name in ("heap", "ended", "first_tokens"):
        lists[name] = np.zeros(num_requests, np.int32)
        lists[name][:before] = getattr(state, name)
    return state._replace(manager=manager, **lists)
