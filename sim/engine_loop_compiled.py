"""The compiled engine loop: schedule, price, record, apply, from one event of others to the next.

One instant is what ``EngineCore.complete`` and ``EngineCore.advance`` do at it; here instants
follow each other until somebody outside has to act.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.core.kv_cache_manager_compiled import num_cached_free
from sim.jit import compiled
from sim.latency.step_time_compiled import step_time
from sim.latency.step_time_state import StepTimeState
from sim.request import RequestStatus
from sim.scheduler.apply_outputs_compiled import apply_outputs, delivers, end, forget_running
from sim.scheduler.request_queue_compiled import add_request
from sim.scheduler.scheduler_compiled import num_rows_needed, schedule
from sim.scheduler.scheduler_state_compiled import NUM_BATCHES, Scheduler

LAST_NS = 1 << 62
FINISHED_ABORTED = int(RequestStatus.FINISHED_ABORTED)

IDLE, WAKE, PAUSE, EMPTY, ROWS, TOO_LATE = range(6)
"""Why the loop returns: nothing in flight; a step ends that others have to see; the rows of steps
are full or one is to be sampled; a request failed with the whole pool; tables need rows; a step
ends beyond LAST_NS."""

BEGIN, GO_ON, END_STEP = range(3)
"""Where it enters: an instant, to schedule; the same, content with what is in flight; the end of
the oldest step in flight."""

CLOCK = np.dtype(
    [
        ("max_in_flight", "i8"),
        ("num_in_flight", "i8"),
        ("oldest", "i8"),  # its place in the batches
        ("num_steps", "i8"),  # whose outputs are applied
        ("num_recorded", "i8"),
        ("num_rows", "i8"),  # rows of steps that Python has not taken yet
        ("next_sample", "i8"),  # number of the step to sample
        ("num_preemptions", "i8"),  # those that a recorded step has told about
        ("num_usable_blocks", "i8"),
        ("reject_unschedulable", "i8"),
        ("num_changes", "i8"),  # requests that came or went
        ("stuck_since", "i8"),  # changes so far when nothing could go on any more
        ("now_ns", "i8"),
        ("is_sample_due", "i8"),
        ("first_arrival", "i8"),  # place of the first one that the queue does not know yet
        ("num_arrivals", "i8"),  # those before included
    ],
    align=True,
)
"""The engine's scalars."""


class EngineState(NamedTuple):
    """All that the loop works on.

    start_ns, end_ns : int64 (batches,); is_recorded : uint8 (batches,)
    rows : int64 (n, columns of the step table)
    arrivals : int32 (R,), records of requests in the order in which they come, also later
    """

    scheduler: Scheduler
    step_time: StepTimeState
    clock: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    is_recorded: np.ndarray
    rows: np.ndarray
    arrivals: np.ndarray


@compiled
def complete_at(e, now_ns):
    """Apply the outputs of the oldest batch, which ends at ``now_ns``."""
    take_arrivals(e, now_ns)
    e.clock[0].now_ns = now_ns
    complete(e)


@compiled
def abort(e, r, now_ns):
    """End a request from outside."""
    take_arrivals(e, now_ns)
    end(e.scheduler, r, FINISHED_ABORTED, now_ns)
    forget_running(e.scheduler)
    e.clock[0].num_changes += 1


@compiled
def take_arrivals(e, now_ns):
    """Let those that came until now wait in the queue."""
    clock, requests = e.clock[0], e.scheduler.manager.requests
    while clock.first_arrival < clock.num_arrivals:
        r = e.arrivals[clock.first_arrival]
        if requests[r].arrival_ns > now_ns:
            return
        add_request(e.scheduler, r)
        e.scheduler.counters[0].num_requests += 1
        clock.num_changes += 1
        clock.first_arrival += 1


@compiled
def _next_arrival_ns(e):
    """When the next request comes that the queue does not know yet, as far as Python has told."""
    clock = e.clock[0]
    if clock.first_arrival == clock.num_arrivals:
        return LAST_NS
    return e.scheduler.manager.requests[e.arrivals[clock.first_arrival]].arrival_ns


@compiled
def run(e, now_ns, horizon_ns, entry):
    """Go on from an instant until a step ends at ``horizon_ns`` or later; return why it ends.

    The clock says when the oldest step in flight ends.
    """
    clock = e.clock[0]
    clock.now_ns = now_ns
    while True:
        if entry == END_STEP:
            complete(e)
        take_arrivals(e, clock.now_ns)
        if entry != GO_ON:
            code = _fill(e)
            if code != WAKE:
                return code
        entry = END_STEP
        if not clock.num_in_flight:
            if _next_arrival_ns(e) >= horizon_ns:
                return IDLE
            clock.now_ns, entry = _next_arrival_ns(e), BEGIN
            continue
        _record_what_runs(e)
        end_ns = e.end_ns[clock.oldest]
        if end_ns >= horizon_ns or delivers(e.scheduler, clock.oldest):
            return WAKE
        if clock.num_rows == len(e.rows) or clock.is_sample_due:
            return PAUSE
        clock.now_ns = end_ns


@compiled
def complete(e):
    """Apply the outputs of the oldest batch, which ends now."""
    clock, oldest = e.clock[0], e.clock[0].oldest
    ended_before = e.scheduler.counters[0].num_ended
    apply_outputs(e.scheduler, oldest, clock.now_ns)
    clock.num_changes += e.scheduler.counters[0].num_ended - ended_before
    clock.oldest = (oldest + 1) % NUM_BATCHES
    clock.num_in_flight -= 1
    clock.num_steps += 1


@compiled
def _fill(e):
    """Schedule until as many batches are in flight as may be; WAKE: go on with what there is."""
    clock, counters = e.clock[0], e.scheduler.counters[0]
    while clock.num_in_flight < clock.max_in_flight:
        if not counters.num_requests or clock.stuck_since == clock.num_changes:
            break
        if num_rows_needed(e.scheduler) > e.scheduler.manager.lookup[0].num_free_rows:
            return ROWS
        place = (clock.oldest + clock.num_in_flight) % NUM_BATCHES
        if schedule(e.scheduler, place, clock.now_ns):
            if not _enter(e, place):
                return TOO_LATE
            continue
        if _had_whole_pool(e):
            return EMPTY
        # An empty step is repeated at once only if it preempted something and nothing is to come.
        if not counters.num_preempted or clock.num_in_flight:
            break
    return WAKE


@compiled
def _had_whole_pool(e):
    """Whether a request failed although no other holds a block; Python decides what to do."""
    clock, counters = e.clock[0], e.scheduler.counters[0]
    if e.scheduler.manager.pool.counters[0].num_free_blocks < clock.num_usable_blocks:
        return False
    if counters.num_preempted:
        return True
    return clock.num_in_flight == 0 and clock.reject_unschedulable and counters.num_waiting > 0


@compiled
def _enter(e, place):
    """Price a batch; it begins when the one before it ends. False if it ends too late."""
    clock, batch = e.clock[0], e.scheduler.batch
    start_ns = clock.now_ns
    if clock.num_in_flight:
        start_ns = e.end_ns[(place + NUM_BATCHES - 1) % NUM_BATCHES]
    length = batch.length[place]
    duration = step_time(
        e.step_time, batch.computed[place], batch.num_new[place], batch.is_decode[place], length
    )
    e.start_ns[place], e.end_ns[place] = start_ns, start_ns + duration
    e.is_recorded[place] = 0
    clock.num_in_flight += 1
    return e.end_ns[place] <= LAST_NS


@compiled
def _record_what_runs(e):
    """Take down the batch that begins now, after what is scheduled at this instant."""
    clock, oldest = e.clock[0], e.clock[0].oldest
    if e.is_recorded[oldest]:
        return
    e.is_recorded[oldest] = 1
    row, scheduler = e.rows[clock.num_rows], e.scheduler
    counters, pool, batch = scheduler.counters[0], scheduler.manager.pool, scheduler.batch
    row[0] = clock.num_recorded
    row[1], row[2] = e.start_ns[oldest], e.end_ns[oldest]
    row[3] = row[4] = 0
    for place in range(batch.length[oldest]):
        row[4 if batch.is_decode[oldest, place] else 3] += batch.num_new[oldest, place]
    row[5], row[6] = counters.num_running, counters.num_waiting
    row[7] = counters.num_preemptions - clock.num_preemptions
    row[8] = pool.counters[0].num_free_blocks
    row[9] = num_cached_free(pool)
    for group_id in range(len(pool.held_by_group)):
        row[10 + group_id] = pool.held_by_group[group_id]
    clock.num_preemptions = counters.num_preemptions
    clock.is_sample_due = clock.num_recorded == clock.next_sample
    clock.num_rows += 1
    clock.num_recorded += 1
