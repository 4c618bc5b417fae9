"""What one scheduling step decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.request import Request


class Scheduled(NamedTuple):
    """``num_tokens`` tokens of one request, the first of them at ``num_computed_tokens``.

    The scheduler appends plain tuples of this shape: a step holds up to a thousand of them.
    """

    request: Request
    num_computed_tokens: int
    num_tokens: int


@dataclass(slots=True)
class SchedulerOutput:
    """One step, in scheduling order: running requests first, then admitted ones.

    scheduled : tuples of the shape ``Scheduled``.
    prefill : (first, count) of each prefill chunk; decode : tokens before each decoded one.
    new_block_ids : by request that got blocks, one list per group; of an admitted request the whole
        table, which is the manager's own and changes with the next step.
    admitted, resumed, preempted : requests that entered for the first time, again, or left.
    finished_req_ids : requests that ended since the step before.
    first_tokens : requests whose first token this step made; filled by ``update_from_output``.
    """

    scheduled: list[tuple[Request, int, int]] = field(default_factory=list)
    prefill: list[tuple[int, int]] = field(default_factory=list)
    decode: list[int] = field(default_factory=list)
    new_block_ids: dict[str, tuple[list[int], ...]] = field(default_factory=dict)
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    finished_req_ids: list[str] = field(default_factory=list)
    first_tokens: list[Request] = field(default_factory=list)

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Tokens by request id, in scheduling order."""
        return {request.request_id: num_tokens for request, _, num_tokens in self.scheduled}

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens of the step."""
        return sum(num_tokens for _, _, num_tokens in self.scheduled)
