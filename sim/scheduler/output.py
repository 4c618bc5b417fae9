"""What one scheduling step decided."""

from __future__ import annotations

from collections.abc import Callable
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
    prefill : (first, count) of each prefill chunk; decode : tokens before each decoded one;
        verify : (first, count) of a decoded token and the drafts behind it.
    new_block_ids : by request that got blocks, one list per group; of an admitted request the whole
        table, which is the manager's own and changes with the next step.
    admitted, resumed, preempted : requests that entered for the first time, again, or left.
    preempted_req_ids : those that left, also by a forced reset since the step before.
    finished_req_ids : requests that ended since the step before.
    scheduled_spec_decode_tokens : drafts to verify, by request that has some.
    chunk_req_ids : requests that sample nothing, for known tokens are left.
    first_tokens : requests whose first token this step made; filled by ``update_from_output``.
    common_prefix : what ``num_common_prefix_blocks`` asks.
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
    verify: list[tuple[int, int]] = field(default_factory=list)
    preempted_req_ids: list[str] = field(default_factory=list)
    scheduled_spec_decode_tokens: dict[str, int] = field(default_factory=dict)
    chunk_req_ids: set[str] = field(default_factory=set)
    common_prefix: Callable[[], list[int]] = list

    def record(self, request: Request, computed: int, num_new: int, num_drafts: int = 0) -> None:
        """Enter a request: its tokens, the last ``num_drafts`` of them drafts."""
        self.scheduled.append((request, computed, num_new))
        if num_drafts:
            self.scheduled_spec_decode_tokens[request.request_id] = num_drafts
            self.verify.append((computed, num_new))
        elif num_new == 1 and computed >= request.num_prompt_tokens:
            self.decode.append(computed)
        else:
            self.prefill.append((computed, num_new))

    def withdraw(self, request: Request) -> tuple[int, int, int] | None:
        """Take a request out again; return its first token, tokens and drafts, None if not in it.

        Cost: that of the whole step, for this is rare.
        """
        entries, drafts = self.scheduled[:], self.scheduled_spec_decode_tokens.copy()
        self.scheduled_spec_decode_tokens.clear()
        for entered in (self.scheduled, self.prefill, self.decode, self.verify):
            entered.clear()
        found = None
        for other, computed, num_new in entries:
            num_drafts = drafts.get(other.request_id, 0)
            if other is request:
                found = (computed, num_new, num_drafts)
            else:
                self.record(other, computed, num_new, num_drafts)
        self.new_block_ids.pop(request.request_id, None)
        self.chunk_req_ids.discard(request.request_id)
        return found

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Tokens by request id, in scheduling order."""
        return {request.request_id: num_tokens for request, _, num_tokens in self.scheduled}

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens of the step."""
        return sum(num_tokens for _, _, num_tokens in self.scheduled)

    @property
    def num_common_prefix_blocks(self) -> list[int]:
        """Leading blocks, by group, that all requests with blocks share.

        Counted when asked, for few ask: true of this step until the next call of the scheduler.
        """
        return self.common_prefix()
