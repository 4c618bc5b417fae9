"""The compiled EngineCore: the same door and the same decisions, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.admission import Admission
from sim.core.block_pool_compiled import NO_BLOCK
from sim.core.integrity import check_integrity
from sim.core.integrity_compiled import is_intact
from sim.core.kv_cache_restore import prefix_cache_stats, restore
from sim.core.kv_cache_state_compiled import new_manager, with_rows
from sim.core.prefix_cache_stats import PrefixCacheStats
from sim.engine_core import Advance, Completed
from sim.engine_loop_compiled import (
    BEGIN,
    CLOCK,
    END_STEP,
    GO_ON,
    IDLE,
    PAUSE,
    ROWS,
    TOO_LATE,
    WAKE,
    EngineState,
    abort,
    complete_at,
    run,
)
from sim.errors import ConfigError, InvariantError
from sim.latency.step_time_state import StepTimeState
from sim.references import held
from sim.request import Request, RequestStatus, Run
from sim.request_records import RequestRecords
from sim.scheduler.scheduler_state_compiled import (
    COUNTERS,
    NUM_BATCHES,
    new_scheduler,
    with_manager,
)
from sim.tables import step_columns
from sim.waste_sample_compiled import WasteSampler

MakeRuns = Callable[[], Sequence[Run]]

_ROWS_OF_STEPS = 8192
# To begin with; memory that nobody has written to is not there.
_ROWS_OF_TABLES = 256
_IDENTITIES = 1 << 23


def _places(dtype: np.dtype[Any]) -> SimpleNamespace:
    """Return the places of the fields of a record of integers."""
    return SimpleNamespace(**{name: place for place, name in enumerate(dtype.names or ())})


_CLOCK, _COUNTERS = _places(CLOCK), _places(COUNTERS)
_FOREVER = 1 << 62


class CompiledEngineCore:
    """Takes any number of steps at a time; see ``sim.engine_core.EngineCore`` for what they are.

    Requests may be added before they arrive (``arrival_ns``), in order of arrival.

    Python is entered when somebody outside has to act: at an arrival, at a first token or an end
    that is waited for, when the buffer of rows is full, and when a request fails although it has
    the whole pool to itself.

    manager, scheduler : freshly built ones, whose rules are taken over; the manager is given the
        state back when ``manager`` is asked for
    """

    knows_arrivals_ahead = True

    def __init__(
        self,
        manager: Any,
        scheduler: Any,
        step_time: StepTimeState,
        recorder: Any,
        reject_unschedulable: bool = True,
    ):
        self.scheduler = scheduler
        self.recorder = recorder
        self.admission = Admission(scheduler.limits, manager, reject_unschedulable)
        self.reject_unschedulable = reject_unschedulable
        self._python_manager = manager
        singles = manager.coordinator.single_type_managers
        self.records = RequestRecords(singles, scheduler.policy.name == "priority")
        self._e = self._new_state(manager, scheduler, step_time)
        self._held: Any = None
        self._waste = WasteSampler(recorder.partition)
        # As plain integers: reading a field of a record takes Python a microsecond.
        self._clock = self._e.clock.view(np.int64)
        self._counters = self._e.scheduler.counters.view(np.int64)
        self._hopeless: set[Request] = set()  # had the whole pool in vain, in this state:
        self._hopeless_state = (-1, -1)

    def _new_state(self, manager: Any, scheduler: Any, step_time: StepTimeState) -> EngineState:
        clock = np.zeros(1, CLOCK).view(np.recarray)
        clock.max_in_flight = NUM_BATCHES if scheduler.async_scheduling else 1
        clock.num_usable_blocks = self.admission.num_usable_blocks
        clock.reject_unschedulable = self.reject_unschedulable
        clock.stuck_since = -1
        clock.next_sample = self.recorder.next_sample
        most = min(scheduler.limits.max_num_seqs, _ROWS_OF_TABLES)
        state = new_manager(manager, num_prefix_ids=_IDENTITIES, num_rows=most)
        num_groups = len(manager.coordinator.single_type_managers)
        columns = len(step_columns(num_groups))
        return EngineState(
            new_scheduler(scheduler, state),
            step_time,
            clock,
            np.zeros(NUM_BATCHES, np.int64),
            np.zeros(NUM_BATCHES, np.int64),
            np.zeros(NUM_BATCHES, np.uint8),
            np.zeros((_ROWS_OF_STEPS, columns), np.int64),
            np.zeros(len(state.requests), np.int32),
        )

    # -- requests come and go ----------------------------------------------------------------
    def add(self, request: Request, make_runs: MakeRuns = tuple) -> str | None:
        """Take a request, or return why it is rejected; make_runs : returns its identities."""
        reason = self.admission.refusal(request)
        if reason is not None:
            self._tell_end(request, "rejected", request.arrival_ns, reason)
            return reason
        clock = self._clock
        self._set_manager(self.records.with_room(self._manager, request, make_runs()))
        r = self.records.add(self._manager, request, self._last_num_tokens(request))
        if clock[_CLOCK.num_arrivals] == len(self._e.arrivals):
            self._move_arrivals()
        self._e.arrivals[clock[_CLOCK.num_arrivals]] = r
        clock[_CLOCK.num_arrivals] += 1
        return None

    def _move_arrivals(self) -> None:
        """Move those that are still to come to the beginning; there are fewer than records."""
        clock, arrivals = self._clock, self._e.arrivals
        first, count = int(clock[_CLOCK.first_arrival]), self._num_to_come
        arrivals[:count] = arrivals[first : first + count].copy()
        clock[_CLOCK.first_arrival], clock[_CLOCK.num_arrivals] = 0, count

    def _last_num_tokens(self, request: Request) -> int:
        most = request.max_tokens
        if request.stop_after is not None:
            most = min(most, request.stop_after)
        return min(request.num_prompt_tokens + most, self.scheduler.limits.max_model_len)

    def watch(self, request: Request, first_token: bool = True) -> None:
        """Somebody waits for a request's end, or its first token: return when it comes."""
        self.records.watch(self._manager, request, first_token)

    def abort(self, request_id: str, now_ns: int) -> Request | None:
        """End a request from outside; return it, or None if it is unknown or has ended."""
        r = self.records.find(request_id)
        if r is None:
            return None
        return self._end_from_outside(r, now_ns, "aborted", None)

    def _end_from_outside(self, r: int, now_ns: int, outcome: str, reason: str | None) -> Request:
        abort(self._hold(), r, now_ns)
        (request,) = self._take_ended(outcome, reason)
        return request

    @property
    def has_requests(self) -> bool:
        """True while a request waits or runs, or is to come."""
        return bool(self._counters[_COUNTERS.num_requests] or self._num_to_come)

    @property
    def _num_to_come(self) -> int:
        return int(self._clock[_CLOCK.num_arrivals] - self._clock[_CLOCK.first_arrival])

    @property
    def next_arrival_ns(self) -> int | None:
        """When the next request arrives that was added ahead of time, if there is one."""
        if not self._num_to_come:
            return None
        r = self._e.arrivals[self._clock[_CLOCK.first_arrival]]
        return int(self._manager.requests.arrival_ns[r])

    @property
    def is_busy(self) -> bool:
        """True while a batch is in flight."""
        return bool(self._clock[_CLOCK.num_in_flight])

    @property
    def num_steps(self) -> int:
        """Steps whose outputs are applied."""
        return int(self._clock[_CLOCK.num_steps])

    # -- time passes -----------------------------------------------------------------------------
    def complete(self, now_ns: int) -> Completed:
        """Apply the outputs of the oldest batch, which ends now."""
        complete_at(self._hold(), now_ns)
        count = int(self._counters[_COUNTERS.num_first_tokens])
        started = []
        if count:
            self._counters[_COUNTERS.num_first_tokens] = 0
            firsts = self._e.scheduler.first_tokens[:count].tolist()
            started = [self.records.synced(self._manager, r) for r in firsts]
        return Completed(self._take_ended("finished", None), started)

    def advance(self, now_ns: int, horizon_ns: float) -> Advance:
        """Take steps until one ends that others have to see, or at ``horizon_ns`` or later."""
        horizon = int(min(horizon_ns, _FOREVER))
        ended: list[Request] = []
        code = run(self._hold(), now_ns, horizon, BEGIN)
        while True:
            self._record()
            ended += self._take_ended("finished", None)
            if code in (IDLE, WAKE):
                break
            now_ns, entry = int(self._clock[_CLOCK.now_ns]), BEGIN
            if code == PAUSE:
                now_ns, entry = self._next_end_ns, END_STEP
            elif code == ROWS:
                self._add_rows()
            elif code == TOO_LATE:
                end_ns = int(self._e.end_ns.max())
                raise ConfigError.one("latency", f"{end_ns} ns", "simulated time within 146 years")
            elif not self._may_repeat(now_ns, ended):
                entry = GO_ON
            else:
                # Somebody may wait for the one that was given up: nothing after this instant.
                horizon = min(horizon, now_ns)
            code = run(self._hold(), now_ns, horizon, entry)
        return Advance(ended, self._next_end_ns if code == WAKE else None)

    @property
    def _next_end_ns(self) -> int:
        return int(self._e.end_ns[self._clock[_CLOCK.oldest]])

    def _record(self) -> None:
        """Hand over the rows of steps, and a sample if one is due."""
        clock = self._clock
        num_rows = int(clock[_CLOCK.num_rows])
        if not num_rows:
            return
        if clock[_CLOCK.is_sample_due]:
            clock[_CLOCK.is_sample_due] = 0
            step = int(clock[_CLOCK.num_recorded]) - 1
            start_ns = int(self._e.start_ns[clock[_CLOCK.oldest]])
            self.recorder.waste_row(step, start_ns, self._waste.sample(self._hold(), self._e))
        self.recorder.steps(self._e.rows[:num_rows])
        clock[_CLOCK.num_rows] = 0
        clock[_CLOCK.next_sample] = self.recorder.next_sample

    def _take_ended(self, outcome: str, reason: str | None) -> list[Request]:
        """Return the requests that ended since the last call, told to the recorder."""
        count = int(self._counters[_COUNTERS.num_ended])
        if not count:
            return []
        self._counters[_COUNTERS.num_ended] = 0
        ended = self.records.ended(self._manager, self._e.scheduler.ended[:count])
        for request in ended:
            request.outcome, request.reason = outcome, reason
            self.recorder.request_done(request, outcome, reason)
        return ended

    def _tell_end(self, request: Request, outcome: str, now_ns: int, reason: str | None) -> None:
        request.finish_ns, request.outcome, request.reason = now_ns, outcome, reason
        self.recorder.request_done(request, outcome, reason)

    # -- a request that failed with the whole pool -------------------------------------------------
    def _may_repeat(self, now_ns: int, ended: list[Request]) -> bool:
        """Deal with a request that failed although it had the whole pool to itself.

        See ``EngineCore._may_repeat``.
        """
        r = self._in_vain()
        request = self.records.requests[r]
        in_flight = bool(self._clock[_CLOCK.num_in_flight])
        may_go_on = in_flight or not self.reject_unschedulable
        if may_go_on and not self._has_failed_before(request):
            return not in_flight
        if not self.reject_unschedulable:
            self._clock[_CLOCK.stuck_since] = self._clock[_CLOCK.num_changes]
            return False
        num_tokens = int(self._manager.requests[r].num_tokens)
        reason = f"{num_tokens:,} tokens do not fit the whole pool"
        ended.append(self._end_from_outside(r, now_ns, "rejected", reason))
        return True

    def _in_vain(self) -> int:
        if self._counters[_COUNTERS.num_preempted]:
            return int(self._counters[_COUNTERS.last_preempted])
        return self._first_waiting()

    def _first_waiting(self) -> int:
        scheduler = self._e.scheduler
        if scheduler.limits[0].is_priority:
            return int(scheduler.heap[0])
        return int(self._counters[_COUNTERS.waiting_head])

    def _has_failed_before(self, request: Request) -> bool:
        """Note that a request failed; return whether it did so before, in the same state."""
        arrivals = slice(self._clock[_CLOCK.first_arrival], self._clock[_CLOCK.num_arrivals])
        to_come = self._e.arrivals[arrivals].tolist()
        known = self.records.num_known_tokens(self._manager, to_come)
        state = (int(self._clock[_CLOCK.num_changes]), known)
        if state != self._hopeless_state:
            self._hopeless_state, self._hopeless = state, set()
        if request in self._hopeless:
            return True
        self._hopeless.add(request)
        return False

    # -- the end -----------------------------------------------------------------------------------
    def give_up_all(self) -> list[Request]:
        """End what is still there as ``stuck``, with the reason why nothing can go on."""
        left = []
        for r in self.records.in_order_of_arrival():
            request = self.records.synced(self._manager, r)
            request.outcome, request.reason = "stuck", self._why_stuck(request)
            self.recorder.request_done(request, "stuck", request.reason)
            left.append(request)
        return left

    def _why_stuck(self, request: Request) -> str:
        free = int(self._manager.pool.counters[0].num_free_blocks)
        usable = self.admission.num_usable_blocks
        state = f"{request.status.name.lower()} with {request.num_tokens:,} tokens"
        if request in self._hopeless:
            return f"{state}: it does not fit the whole pool of {usable:,} blocks"
        if request.status is RequestStatus.RUNNING:
            return f"{state}: no step can take any of them"
        first = self.records.requests[self._first_waiting()]
        if first is not request:
            return f"{state} behind {first.request_id}"
        needed = self.admission.admission_need(request)
        return f"{state}: it needs {needed:,} blocks at once, {free:,} of {usable:,} are free"

    # -- the state ---------------------------------------------------------------------------------
    @property
    def _manager(self) -> Any:
        return self._e.scheduler.manager

    def _set_manager(self, manager: Any) -> None:
        """Put a manager that may have grown in the place of the old one."""
        scheduler = self._e.scheduler
        if manager is scheduler.manager:
            return
        arrivals = np.zeros(len(manager.requests), np.int32)
        arrivals[: len(self._e.arrivals)] = self._e.arrivals
        self._e = self._e._replace(scheduler=with_manager(scheduler, manager), arrivals=arrivals)
        self._held = None

    def _hold(self) -> Any:
        if self._held is None:
            self._held = held(self._e)
        return self._held

    def _add_rows(self) -> None:
        """Make room for the tables of as many requests as may run."""
        tables = self._manager.tables
        counters = self._counters
        wanted = int(counters[_COUNTERS.num_running] + counters[_COUNTERS.num_waiting])
        most = self.scheduler.limits.max_num_seqs
        num_rows = min(max(2 * len(tables.free_rows), wanted), most)
        self._set_manager(with_rows(self._manager, num_rows))

    @property
    def manager(self) -> Any:
        """The Python manager, given the state that there is now. Cost: O(pool + tables)."""
        names = {r: request.request_id for r, request in self.records.requests.items()}
        return restore(self._python_manager, self._manager, names, self.records.num_prefix_ids)

    def check(self) -> None:
        """Raise InvariantError if the state is broken; the restored manager finds the words."""
        running = self._e.scheduler.running[: self._counters[_COUNTERS.num_running]]
        pool = self._manager.pool
        sizes = len(pool.blocks), len(pool.held_by_group), self.records.num_prefix_ids
        if is_intact(self._manager, running, *sizes):
            return
        check_integrity(self.manager)
        raise InvariantError("the compiled state is broken where the Python one would not be")

    @property
    def prefix_cache_stats(self) -> PrefixCacheStats:
        """What lookups asked for and found."""
        return prefix_cache_stats(self._manager)

    def cached_prefix_ids(self) -> np.ndarray:
        """Return the identities that blocks are cached under, in any group and order; int64."""
        pool = self._manager.pool
        counters = pool.counters[0]
        queue = slice(counters.back_head, counters.back_length)
        free = pool.back_prefix[queue][pool.back[queue] != NO_BLOCK]
        held = [ids[pool.index[ids].any(axis=1)] for ids in self.records.prefix_ids(self._manager)]
        return np.concatenate([free, *held]).astype(np.int64)
