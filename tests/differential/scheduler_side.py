"""What a scheduler has to offer to be driven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.differential.side import SNAPSHOT, Rows


@dataclass
class Step:
    """What one step decided, in plain values; requests in scheduling order."""

    scheduled: list[tuple[str, int, int]]
    new_block_ids: dict[str, Rows]
    admitted: list[str]
    resumed: list[str]
    preempted: list[str]
    finished: list[str]
    drafts: dict[str, int]
    common: list[int]
    to_zero: list[int]


NEGATIVE_TOKENS = "schedules a negative number of tokens"
TOO_MANY_ADAPTERS = "stops: more adapters run than max_loras, for one was not in the step before"


class Nonsense(Exception):
    """The reference decided what no engine could carry out: the world ends without a verdict."""


class SchedulerSide:
    """One Scheduler with its manager and requests."""

    name: str
    scheduler: Any
    manager: Any

    def add(self, number: int) -> None:
        """Add request ``number`` of the world."""
        raise NotImplementedError

    def grammar_ready(self, request_id: str) -> None:
        raise NotImplementedError

    def requests(self) -> dict[str, Any]:
        raise NotImplementedError

    def abort(self, request_ids: list[str]) -> list[str]:
        raise NotImplementedError

    def reset(self, running: bool) -> bool:
        raise NotImplementedError

    def schedule(self, throttle: bool) -> tuple[Any, Step]:
        """Return the side's output, to be given to ``update`` later, and what it says."""
        raise NotImplementedError

    def update(self, handle: Any) -> tuple[list[tuple[str, int, str | None]], Any]:
        """Apply a step's outputs; return (request, tokens, why it ended or None), statistics."""
        raise NotImplementedError

    def propose(self, drafts: dict[str, int]) -> None:
        """Tell how many draft tokens each running request has next (synchronous only)."""
        raise NotImplementedError

    def snapshot(self) -> tuple[Any, ...]:
        raise NotImplementedError


SCHEDULER_SNAPSHOT = (*SNAPSHOT, "waiting", "skipped", "running", "requests")
