"""The compiled half of what the outputs of a step do to its requests."""

from __future__ import annotations

from sim.core.kv_cache_manager_compiled import cache_blocks, free
from sim.core.kv_cache_state_compiled import WATCHES_FIRST_TOKEN
from sim.jit import compiled
from sim.request import RequestStatus
from sim.scheduler.request_queue_compiled import remove_request
from sim.scheduler.scheduler_state_compiled import CHUNK

RUNNING, PREEMPTED = int(RequestStatus.RUNNING), int(RequestStatus.PREEMPTED)
FINISHED_LENGTH_CAPPED = int(RequestStatus.FINISHED_LENGTH_CAPPED)


@compiled
def apply_outputs(s, batch, now_ns):
    """Give each request that sampled its token, in scheduling order; end those that are done.

    Those that ended, and watched ones that got their first token, are appended to their lists.
    """
    counters, requests = s.counters[0], s.manager.requests
    is_async, ended_before = s.limits[0].async_scheduling, counters.num_ended
    for place in range(s.batch.length[batch]):
        r = s.batch.request[batch, place]
        request = requests[r]
        # One that has ended since is passed over; its record may be in use again.
        if _is_gone(request, s.batch.serial[batch, place]):
            continue
        if s.batch.flags[batch, place] & CHUNK:
            continue
        if request.async_tokens_to_discard:
            request.async_tokens_to_discard -= 1
            continue
        if request.num_tokens == request.num_prompt_tokens:
            _note_first_token(s, r, now_ns)
        request.num_tokens += 1
        if is_async:
            request.num_output_placeholders -= 1
            verified = request.num_computed_tokens - request.num_output_placeholders
            # Blocks that outputs in flight do not reach; most steps complete none.
            if verified >= request.quiet_until and request.status == RUNNING:
                cache_blocks(s.manager, r, verified)
        if request.num_tokens >= request.ends_at:
            end(s, r, FINISHED_LENGTH_CAPPED, now_ns)
    if counters.num_ended > ended_before:
        forget_running(s)


@compiled
def _is_gone(request, serial):
    return request.serial != serial or request.status > PREEMPTED


@compiled
def _note_first_token(s, r, now_ns):
    counters, request = s.counters[0], s.manager.requests[r]
    request.first_token_ns = now_ns
    if request.is_watched & WATCHES_FIRST_TOKEN:
        s.first_tokens[counters.num_first_tokens] = r
        counters.num_first_tokens += 1


@compiled
def end(s, r, status, now_ns):
    """Give back what an ended request holds; ``forget_running`` takes it off the running ones."""
    counters, request = s.counters[0], s.manager.requests[r]
    free(s.manager, r)
    if request.status != RUNNING:
        remove_request(s, r)
    request.status = status
    request.finish_ns = now_ns
    counters.num_requests -= 1
    s.ended[counters.num_ended] = r
    counters.num_ended += 1


@compiled
def forget_running(s):
    """Take those that do not run any more off the running ones."""
    counters, requests = s.counters[0], s.manager.requests
    kept = 0
    for place in range(counters.num_running):
        r = s.running[place]
        if requests[r].status == RUNNING:
            s.running[kept] = r
            kept += 1
    counters.num_running = kept


@compiled
def delivers(s, batch):
    """Whether the outputs of a step bring a first token or an end that somebody waits for."""
    requests = s.manager.requests
    for place in range(s.batch.length[batch]):
        request = requests[s.batch.request[batch, place]]
        if not request.is_watched or s.batch.flags[batch, place] & CHUNK:
            continue
        if _is_gone(request, s.batch.serial[batch, place]) or request.async_tokens_to_discard:
            continue
        is_first = request.num_tokens == request.num_prompt_tokens
        if is_first and request.is_watched & WATCHES_FIRST_TOKEN:
            return True
        if request.num_tokens + 1 >= request.ends_at:
            return True
    return False
