"""Scheduling policies: who is admitted next, and who gives way when blocks run out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.registry import Registry
from sim.request import Request
from sim.scheduler.priority_request_queue import PriorityRequestQueue
from sim.scheduler.request_queue import FCFSRequestQueue, RequestQueue


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """Order of admission and choice of a victim.

    make_queue : an empty queue
    next_queue : (waiting, skipped), one of them not empty -> the queue whose head comes next
    victim : running requests in order of admission -> the place of the one that gives way

    Source: spec/manager.md 6.2, 6.3 B5.
    """

    name: str
    make_queue: Callable[[], RequestQueue]
    next_queue: Callable[[RequestQueue, RequestQueue], RequestQueue]
    victim: Callable[[Sequence[Request]], int]


def _skipped_first(waiting: RequestQueue, skipped: RequestQueue) -> RequestQueue:
    return skipped if skipped else waiting


def _smaller_head(waiting: RequestQueue, skipped: RequestQueue) -> RequestQueue:
    if not (waiting and skipped):
        return waiting if waiting else skipped
    if waiting.peek_request().sort_key < skipped.peek_request().sort_key:
        return waiting
    return skipped


def _last(running: Sequence[Request]) -> int:
    return len(running) - 1


def _least_urgent(running: Sequence[Request]) -> int:
    """Return the largest (priority, arrival), the first one of equals."""
    keys = [(request.priority, request.arrival_ns) for request in running]
    return keys.index(max(keys))


SCHEDULING_POLICIES: Registry[SchedulingPolicy] = Registry(
    "scheduler.policy",
    {
        policy.name: policy
        for policy in (
            SchedulingPolicy("fcfs", FCFSRequestQueue, _skipped_first, _last),
            SchedulingPolicy("priority", PriorityRequestQueue, _smaller_head, _least_urgent),
        )
    },
)
