"""What one scheduling step decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.request import Request


class Scheduled(NamedTuple):
    """``num_tokens`` tokens of one request, the first of them at ``num_computed_tokens``."""

    request: Request
    num_computed_tokens: int
    num_tokens: int


@dataclass(slots=True)
class SchedulerOutput:
    """One step, in scheduling order: running requests first, then admitted ones.

    new_block_ids: per request that got blocks (the whole table for admitted ones), one list per
    group. preempted, admitted (new) and resumed list requests; finished_req_ids those that ended
    since the step before.
    """

    scheduled: list[Scheduled] = field(default_factory=list)
    new_block_ids: dict[str, tuple[list[int], ...]] = field(default_factory=dict)
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    finished_req_ids: list[str] = field(default_factory=list)
    total_num_scheduled_tokens: int = 0

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Tokens by request id, in scheduling order."""
        return {s.request.request_id: s.num_tokens for s in self.scheduled}
