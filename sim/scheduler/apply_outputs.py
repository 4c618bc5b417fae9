"""What the outputs of a step do to its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.errors import InvariantError
from sim.request import Request, RequestStatus
from sim.scheduler.output import SchedulerOutput

if TYPE_CHECKING:
    from sim.scheduler.scheduler import Scheduler


def apply_outputs(scheduler: Scheduler, output: SchedulerOutput) -> list[Request]:
    """Give every request that sampled its tokens, in scheduling order; return those that ended.

    Source: spec/manager.md 6.6; 6.10 where scheduling is asynchronous.
    """
    if scheduler.async_scheduling or output.scheduled_spec_decode_tokens:
        return _apply_any(scheduler, output)
    finished: list[Request] = []
    requests, chunks = scheduler.requests, output.chunk_req_ids
    for request, computed, _ in output.scheduled:
        request_id = request.request_id
        # One that has ended since is passed over; its id may be in use again.
        if requests.get(request_id) is not request or request_id in chunks:
            continue
        request.num_tokens = num_tokens = request.num_tokens + 1
        if computed < request.num_prompt_tokens and num_tokens == request.num_prompt_tokens + 1:
            output.first_tokens.append(request)
        if num_tokens >= request.ends_at:
            _end(scheduler, request, finished)
    return finished


def _apply_any(scheduler: Scheduler, output: SchedulerOutput) -> list[Request]:
    """The same with drafts, or with other steps in flight."""
    finished: list[Request] = []
    requests, chunks = scheduler.requests, output.chunk_req_ids
    is_async, drafts = scheduler.async_scheduling, output.scheduled_spec_decode_tokens
    for request, _, _ in output.scheduled:
        request_id = request.request_id
        if requests.get(request_id) is not request or request_id in chunks:
            continue
        count = 1
        if drafts and request_id in drafts:
            count = _verify(scheduler, request, drafts[request_id])
        if request.async_tokens_to_discard:
            request.async_tokens_to_discard -= 1
            continue
        before = num_tokens = request.num_tokens
        num_tokens += count
        if num_tokens >= request.ends_at:
            num_tokens = max(before + 1, request.ends_at)
        request.num_tokens = num_tokens
        if before == request.num_prompt_tokens:
            output.first_tokens.append(request)
        if is_async:
            request.num_output_placeholders = in_flight = (
                request.num_output_placeholders - num_tokens + before
            )
            if in_flight < 0:
                raise InvariantError(f"{request_id} got more tokens than were in flight")
            verified = request.num_computed_tokens - in_flight
            # Blocks that outputs in flight do not reach; most steps complete none.
            if verified >= request.quiet_until and request.status is RequestStatus.RUNNING:
                scheduler.kv_cache_manager.cache_blocks(request, verified)
        if num_tokens >= request.ends_at:
            _end(scheduler, request, finished)
    return finished


def _verify(scheduler: Scheduler, request: Request, num_drafts: int) -> int:
    """Ask how many tokens a request got, and take back what was counted for rejected drafts."""
    count = scheduler.num_sampled(request, num_drafts)
    if not 1 <= count <= num_drafts + 1:
        raise InvariantError(f"{count} tokens sampled with {num_drafts} drafts")
    request.has_placeholder_drafts = False
    if request.async_tokens_to_discard:
        return count
    rejected = num_drafts + 1 - count
    if request.num_computed_tokens > 0:
        request.num_computed_tokens -= rejected
    if request.num_output_placeholders > 0:
        request.num_output_placeholders -= rejected
    stats = scheduler.spec_decode_stats
    stats.num_drafts += 1
    stats.num_draft_tokens += num_drafts
    stats.num_accepted_tokens += count - 1
    return count


def _end(scheduler: Scheduler, request: Request, finished: list[Request]) -> None:
    """End a request; EOS is looked for before the limits. Source: spec/manager.md 6.6."""
    at_eos = request.stop_after is not None and request.num_output_tokens >= request.stop_after
    status = RequestStatus.FINISHED_STOPPED if at_eos else RequestStatus.FINISHED_LENGTH_CAPPED
    scheduler.end(request, status)
    finished.append(request)
