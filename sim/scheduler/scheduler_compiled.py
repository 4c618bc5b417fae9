"""The compiled half of the scheduler: which request computes how many tokens in the next step.

``s`` is the state, ``r`` the number of a request's record. Blocked requests, adapters, drafts and
throttled prefills are the Python scheduler's alone.
"""

from __future__ import annotations

from sim.core.kv_cache_manager_compiled import (
    allocate_slots,
    free,
    get_computed_blocks,
    new_step_starts,
)
from sim.jit import compiled
from sim.request import RequestStatus
from sim.scheduler.align_compiled import block_aligned_split
from sim.scheduler.request_queue_compiled import (
    peek_request,
    prepend_request,
    remove_request,
)
from sim.scheduler.scheduler_state_compiled import CHUNK, LAST_CHUNK

WAITING, RUNNING, PREEMPTED = map(
    int, (RequestStatus.WAITING, RequestStatus.RUNNING, RequestStatus.PREEMPTED)
)


@compiled
def num_rows_needed(s):
    """Rows for tables that the next step may take at most."""
    counters, limits = s.counters[0], s.limits[0]
    return min(counters.num_waiting, limits.max_num_seqs - counters.num_running)


@compiled
def schedule(s, batch, now_ns):
    """Decide the next step into ``batch``; return how many requests are in it.

    Takes its blocks and counts its tokens as computed.
    """
    counters = s.counters[0]
    new_step_starts(s.manager)
    counters.batch, counters.now_ns = batch, now_ns
    counters.budget = s.limits[0].max_num_batched_tokens
    counters.place = counters.num_preempted = 0
    s.batch.length[batch] = 0
    _schedule_running(s)
    if not counters.num_preempted:
        _schedule_waiting(s)
    return s.batch.length[batch]


# -- running requests ------------------------------------------------------------------------------
@compiled
def _schedule_running(s):
    """Give running requests their tokens, in order of admission."""
    counters, requests, is_async = s.counters[0], s.manager.requests, s.limits[0].async_scheduling
    while counters.place < counters.num_running and counters.budget > 0:
        r = s.running[counters.place]
        counters.place += 1
        request = requests[r]
        computed = request.num_computed_tokens
        # Most decode steps: no block is taken, registered or given back, and no limit is near.
        if (
            computed + 1 < request.quiet_until
            and request.num_tokens + request.num_output_placeholders - computed == 1
        ):
            _enter(s, r, computed, 1, 1, 0)
            request.num_computed_tokens = computed + 1
            if is_async:
                request.num_output_placeholders += 1
            counters.budget -= 1
        elif not _schedule_closely(s, r):
            break


@compiled
def _enter(s, r, computed, num_new, is_decode, flags):
    """Append a row to the batch in the making."""
    batch = s.counters[0].batch
    place = s.batch.length[batch]
    s.batch.request[batch, place] = r
    s.batch.serial[batch, place] = s.manager.requests[r].serial
    s.batch.computed[batch, place] = computed
    s.batch.num_new[batch, place] = num_new
    s.batch.is_decode[batch, place] = is_decode
    s.batch.flags[batch, place] = flags
    s.batch.length[batch] = place + 1


@compiled
def _schedule_closely(s, r):
    """Give a running request its tokens, if any; False if it had to give way."""
    request = s.manager.requests[r]
    if _has_its_last_token(s, request):
        return True
    num_new = _running_chunk(s, request)
    if num_new <= 0:
        return True
    if not _allocate_or_preempt(s, r, num_new):
        return False
    _record(s, r, request.num_computed_tokens, num_new)
    return True


@compiled
def _has_its_last_token(s, request):
    """Whether steps in flight are sure to bring the request to max_tokens."""
    in_flight = request.num_output_placeholders
    if not s.limits[0].async_scheduling or not in_flight:
        return False
    last = request.num_prompt_tokens + request.max_tokens
    return request.num_computed_tokens + 2 - in_flight >= last


@compiled
def _running_chunk(s, request):
    limits, computed = s.limits[0], request.num_computed_tokens
    known = request.num_tokens + request.num_output_placeholders
    room = limits.max_model_len - computed - 1
    num_new = min(_below_threshold(limits, known - computed), s.counters[0].budget, room)
    if limits.mamba_align_block_size and num_new > 0:
        num_new = block_aligned_split(request, limits.mamba_align_block_size, computed, num_new, 0)
    return num_new


@compiled
def _below_threshold(limits, num_new):
    threshold = limits.long_prefill_token_threshold
    return threshold if 0 < threshold < num_new else num_new


@compiled
def _allocate_or_preempt(s, r, num_new):
    """Take blocks, preempting running requests until there are enough; False if it had to go."""
    while not allocate_slots(s.manager, r, num_new, 0, False, False, True):
        victim = _take_victim(s)
        preempt_request(s, victim)
        s.counters[0].num_preempted += 1
        s.counters[0].last_preempted = victim
        if victim == r:
            return False
    return True


@compiled
def _take_victim(s):
    """Take a request out of the running ones, and out of the step if it is in it (Q7)."""
    counters = s.counters[0]
    place = counters.num_running - 1
    if s.limits[0].is_priority:
        place = _least_urgent(s)
    victim = s.running[place]
    for i in range(place, counters.num_running - 1):
        s.running[i] = s.running[i + 1]
    counters.num_running -= 1
    if place < counters.place - 1 and _undo(s, victim):
        counters.place -= 1
    return victim


@compiled
def _least_urgent(s):
    """Return the place of the largest (priority, arrival), the first one of equals."""
    requests, found = s.manager.requests, 0
    for place in range(1, s.counters[0].num_running):
        a, b = requests[s.running[place]], requests[s.running[found]]
        if a.priority > b.priority or (a.priority == b.priority and a.arrival_ns > b.arrival_ns):
            found = place
    return found


@compiled
def _undo(s, victim):
    """Take a request out of the step; False if it was not in it."""
    counters, request = s.counters[0], s.manager.requests[victim]
    batch, found = counters.batch, -1
    length = s.batch.length[batch]
    for place in range(length):
        if s.batch.request[batch, place] == victim:
            found = place
    if found < 0:
        return False
    counters.budget += s.batch.num_new[batch, found]
    if s.limits[0].async_scheduling and not request.is_prefill_chunk:
        request.num_output_placeholders -= 1
    if s.batch.flags[batch, found] & LAST_CHUNK:
        request.is_prefill_chunk = 1
    for place in range(found, length - 1):
        _move(s, batch, place + 1, place)
    s.batch.length[batch] = length - 1
    return True


@compiled
def _move(s, batch, source, target):
    s.batch.request[batch, target] = s.batch.request[batch, source]
    s.batch.serial[batch, target] = s.batch.serial[batch, source]
    s.batch.computed[batch, target] = s.batch.computed[batch, source]
    s.batch.num_new[batch, target] = s.batch.num_new[batch, source]
    s.batch.is_decode[batch, target] = s.batch.is_decode[batch, source]
    s.batch.flags[batch, target] = s.batch.flags[batch, source]


@compiled
def preempt_request(s, r):
    """Give back what a request holds; it waits before all others."""
    request = s.manager.requests[r]
    free(s.manager, r)
    request.status = PREEMPTED
    request.num_computed_tokens = 0
    request.num_preemptions += 1
    s.counters[0].num_preemptions += 1
    prepend_request(s, r)


# -- waiting requests ------------------------------------------------------------------------------
@compiled
def _schedule_waiting(s):
    """Admit waiting requests until one does not fit: no later one is tried."""
    counters = s.counters[0]
    while counters.num_waiting and counters.budget > 0:
        if counters.num_running >= s.limits[0].max_num_seqs or not _admit(s, peek_request(s)):
            break


@compiled
def _admit(s, r):
    """Try to start the first waiting request; False if it has to wait."""
    counters, limits, request = s.counters[0], s.limits[0], s.manager.requests[r]
    num_hit = get_computed_blocks(s.manager, r)
    num_new = _first_chunk(s, request, num_hit)
    if num_new <= 0:
        return False
    is_busy = counters.num_running > 0
    must_fit = limits.scheduler_reserve_full_isl != 0
    if not allocate_slots(s.manager, r, num_new, num_hit, True, must_fit, is_busy):
        return False
    remove_request(s, r)
    _start(s, r, num_hit)
    _record(s, r, num_hit, num_new)
    return True


@compiled
def _first_chunk(s, request, num_hit):
    """Return the tokens that a waiting request may begin with, 0 for none."""
    limits, budget = s.limits[0], s.counters[0].budget
    num_new = _below_threshold(limits, request.num_tokens - num_hit)
    if not limits.enable_chunked_prefill and num_new > budget:
        return 0
    num_new = min(num_new, budget)
    if limits.mamba_align_block_size:
        uncached = s.manager.lookup[0].num_uncached_common_prefix_tokens
        num_new = block_aligned_split(
            request, limits.mamba_align_block_size, num_hit, num_new, uncached
        )
    return num_new


@compiled
def _start(s, r, num_hit):
    counters, request = s.counters[0], s.manager.requests[r]
    s.running[counters.num_running] = r
    counters.num_running += 1
    if request.status == WAITING:
        request.first_scheduled_ns = counters.now_ns
    request.status = RUNNING
    if request.num_cached_tokens < 0:
        request.num_cached_tokens = num_hit


@compiled
def _record(s, r, computed, num_new):
    """Enter a request into the step and count its tokens as computed."""
    counters, limits, request = s.counters[0], s.limits[0], s.manager.requests[r]
    known = request.num_tokens + request.num_output_placeholders
    end = computed + num_new
    is_decode = num_new == 1 and computed >= request.num_prompt_tokens
    counters.budget -= num_new
    request.num_computed_tokens = end
    if end < known:
        request.is_prefill_chunk = 1
        request.quiet_until = 0
        _enter(s, r, computed, num_new, is_decode, CHUNK)
        return
    flags = LAST_CHUNK if request.is_prefill_chunk else 0
    request.is_prefill_chunk = 0
    last = min(request.num_prompt_tokens + request.max_tokens, limits.max_model_len)
    request.quiet_until = min(request.quiet_until, last)
    if limits.async_scheduling:
        request.num_output_placeholders += 1
    _enter(s, r, computed, num_new, is_decode, flags)
