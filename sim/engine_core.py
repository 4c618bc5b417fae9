"""EngineCore: the one door between simulated time and decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sim.admission import Admission
from sim.core.integrity import check_integrity
from sim.core.prefix_cache_stats import PrefixCacheStats
from sim.errors import ConfigError
from sim.latency.work import StepTime, StepWork
from sim.request import Request, RequestStatus
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.scheduler import Scheduler

LAST_NS = 1 << 62
"""Times beyond it do not fit the result tables' 64 bits."""

MakePrefixIds = Callable[[], Sequence[int]]


class StepRecorder(Protocol):
    """What the core tells about steps and ended requests (``sim.records.Recorder``)."""

    def step(
        self,
        start_ns: int,
        end_ns: int,
        work: StepWork,
        scheduler: Scheduler,
        manager: object,
        num_preempted: int,
    ) -> None:
        """Take down one step while it runs: its blocks are taken, its outputs not applied."""

    def request_done(self, request: Request, outcome: str, reason: str | None) -> None:
        """Take down how a request ended."""


class Advance(NamedTuple):
    """What an instant brought, after the outputs that came at it, and what came up to ``wake_ns``.

    ended : requests that ended, in order: given up (``outcome`` says so), or finished in a step
        that the core went through by itself. ``finish_ns`` may lie behind the instant, and is
        before ``horizon_ns``; a request that is watched is among them only if it was given up
    wake_ns : when the oldest batch in flight ends, or None if nothing can be done before something
        arrives
    """

    ended: list[Request]
    wake_ns: int | None


class Completed(NamedTuple):
    """What the end of a batch brought: requests that ended, and those with their first token."""

    ended: list[Request]
    first_tokens: list[Request]


@dataclass(slots=True)
class _Batch:
    """A scheduled step, from its scheduling until its outputs are applied."""

    output: SchedulerOutput
    work: StepWork
    start_ns: int
    end_ns: int
    is_recorded: bool = False


class EngineCore:
    """Schedules, asks for the step's duration, applies its outputs.

    With asynchronous scheduling two batches are in flight: the next one is scheduled while one
    runs, and begins when that one ends. Otherwise there is one.

    Requests that can never fit are refused at ``add`` (``reject_unschedulable``), as a server in
    front of the engine would; otherwise they wait for ever, as in vLLM (spec/manager.md D.8).

    ``check_every`` recounts the whole state every so many steps (0: never). ``on_step`` is called
    with the time before each scheduling, and before the outputs of each step.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        step_time: StepTime,
        recorder: StepRecorder,
        reject_unschedulable: bool = True,
        check_every: int = 0,
        on_step: Callable[[int], None] | None = None,
    ):
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.step_time = step_time
        self.recorder = recorder
        self.admission = Admission(scheduler.limits, self.manager, reject_unschedulable)
        self.reject_unschedulable = reject_unschedulable
        self.check_every = check_every
        self.on_step = on_step
        self.num_steps = 0
        self._in_flight: deque[_Batch] = deque()
        self._max_in_flight = 2 if scheduler.async_scheduling else 1
        self._num_preemptions = 0  # those that a recorded step has told about
        self._num_changes = 0  # requests that came or went
        self._hopeless: set[Request] = set()  # had the whole pool in vain, in this state:
        self._hopeless_state = (-1, -1)
        self._stuck_since = -1  # changes so far when nothing could go on any more

    # -- requests come and go ----------------------------------------------------------------
    def add(self, request: Request, make_prefix_ids: MakePrefixIds = tuple) -> str | None:
        """Take a request, or return why it is rejected.

        make_prefix_ids : returns the identities of its hash blocks; called if it is taken
        """
        reason = self.admission.refusal(request)
        if reason is not None:
            # It was never there: nobody is tried again because of it.
            self._tell_end(request, "rejected", request.arrival_ns, reason)
            return reason
        self._num_changes += 1
        self.scheduler.add_request(request)
        request.prefix_ids = make_prefix_ids()
        return None

    def watch(self, request: Request, first_token: bool = True) -> None:
        """Somebody waits for a request's first token or its end: return at the step that brings it.

        If the first token has come, ``first_token_ns`` says so from here on. This core returns at
        every step anyway, and its requests are always up to date.
        """

    def check(self) -> None:
        """Raise InvariantError if the state is broken (``sim.core.integrity``)."""
        check_integrity(self.manager)

    @property
    def prefix_cache_stats(self) -> PrefixCacheStats:
        """What lookups asked for and found."""
        return self.manager.prefix_cache_stats

    def cached_prefix_ids(self) -> np.ndarray:
        """Return the identities that blocks are cached under, in any group, sorted; int64."""
        indexes = self.manager.block_pool.cached_blocks
        found = [np.fromiter(index, np.int64, len(index)) for index in indexes]
        return np.unique(np.concatenate(found))

    def abort(self, request_id: str, now_ns: int) -> Request | None:
        """End a request from outside; return it, or None if it is unknown or has ended."""
        self._tell_time(now_ns)
        ended = self.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)
        for request in ended:
            self._end(request, "aborted", now_ns, None)
        return ended[0] if ended else None

    @property
    def has_requests(self) -> bool:
        """True while a request waits or runs."""
        return bool(self.scheduler.requests)

    @property
    def is_busy(self) -> bool:
        """True while a batch is in flight."""
        return bool(self._in_flight)

    # -- time passes ---------------------------------------------------------------------------
    def complete(self, now_ns: int) -> Completed:
        """Apply the outputs of the oldest batch, which ends now."""
        batch = self._in_flight.popleft()
        self._tell_time(now_ns)
        finished = self.scheduler.update_from_output(batch.output)
        for request in batch.output.first_tokens:
            request.first_token_ns = now_ns
        for request in finished:
            self._end(request, "finished", now_ns, None)
        self._propose_drafts(batch.output)
        self.num_steps += 1
        if self.check_every and self.num_steps % self.check_every == 0:
            self.check()
        return Completed(finished, batch.output.first_tokens)

    def _propose_drafts(self, output: SchedulerOutput) -> None:
        """Asynchronous steps hold places for drafts; otherwise they are known after the step."""
        scheduler = self.scheduler
        if not scheduler.num_spec_tokens or scheduler.async_scheduling:
            return
        ids = [request.request_id for request, _, _ in output.scheduled]
        scheduler.update_draft_token_ids(dict.fromkeys(ids, scheduler.num_spec_tokens))

    def advance(self, now_ns: int, horizon_ns: float) -> Advance:
        """Schedule what can be scheduled now, one batch or two; see ``Advance`` for the answer.

        Nothing arrives before ``horizon_ns``, so a core may take several steps at once; this one
        does not. An empty batch takes no time: nothing is tried again before something changes.
        """
        given_up: list[Request] = []
        while len(self._in_flight) < self._max_in_flight and self._may_schedule():
            output = self._schedule(now_ns, given_up)
            if output is None:
                break
            self._in_flight.append(self._batch(output, now_ns))
        self._record_what_runs(now_ns)
        return Advance(given_up, self._in_flight[0].end_ns if self._in_flight else None)

    def _may_schedule(self) -> bool:
        return bool(self.scheduler.requests) and self._stuck_since != self._num_changes

    def _schedule(self, now_ns: int, given_up: list[Request]) -> SchedulerOutput | None:
        """Return the next batch, None if it would be empty.

        An empty one is repeated at once only if it preempted something, for then the state has
        changed, and if no outputs are to come that change it as well.
        """
        while True:
            self._tell_time(now_ns)
            output = self.scheduler.schedule()
            if output.scheduled:
                return output
            request = output.preempted[-1] if output.preempted else self._first_in_vain()
            if request is None or not self._may_repeat(request, now_ns, given_up):
                return None

    def _first_in_vain(self) -> Request | None:
        """Return the first that waits although it has the pool to itself, if it may not do so."""
        if self._in_flight or not self.reject_unschedulable or not self._has_whole_pool():
            return None
        candidates = self.scheduler.policy.make_queue()
        for queue in (self.scheduler.skipped_waiting, self.scheduler.waiting):
            for request in queue:
                if not request.status.is_blocked:
                    candidates.add_request(request)
                    break
        return candidates.peek_request() if candidates else None

    def _has_whole_pool(self) -> bool:
        free: int = self.manager.block_pool.get_num_free_blocks()
        return free >= self.admission.num_usable_blocks

    def _may_repeat(self, request: Request, now_ns: int, given_up: list[Request]) -> bool:
        """Deal with a request that failed although it had the whole pool to itself.

        It is given up, or, if it may wait for ever, tried again; it is hopeless when it fails a
        second time and no request has ended, arrived or got a token in between. So it is, too,
        while its own outputs are to come: they may end it.
        """
        if not self._has_whole_pool():
            return not self._in_flight
        may_go_on = self._in_flight or not self.reject_unschedulable
        if may_go_on and not self._has_failed_before(request):
            return not self._in_flight
        if not self.reject_unschedulable:
            self._stuck_since = self._num_changes
            return False
        self.scheduler.finish_requests([request.request_id], RequestStatus.FINISHED_IGNORED)
        reason = f"{request.num_tokens:,} tokens do not fit the whole pool"
        self._end(request, "rejected", now_ns, reason)
        given_up.append(request)
        return True

    def _has_failed_before(self, request: Request) -> bool:
        """Note that a request failed; return whether it did so before, in the same state.

        All that failed are kept: two may take turns for ever, for instance with one adapter each.
        Cost: O(requests); few runs ever ask.
        """
        known = sum(r.num_tokens for r in self.scheduler.requests.values())
        state = (self._num_changes, known)
        if state != self._hopeless_state:
            self._hopeless_state, self._hopeless = state, set()
        if request in self._hopeless:
            return True
        self._hopeless.add(request)
        return False

    def _batch(self, output: SchedulerOutput, now_ns: int) -> _Batch:
        """Return the batch with its times: it begins when the one before it ends."""
        for request in output.admitted:
            request.first_scheduled_ns = now_ns
        work = StepWork(output.prefill, output.decode, output.verify)
        start_ns = self._in_flight[-1].end_ns if self._in_flight else now_ns
        end_ns = start_ns + self.step_time(work)
        if end_ns > LAST_NS:
            raise ConfigError.one("latency", f"{end_ns} ns", "simulated time within 146 years")
        return _Batch(output, work, start_ns, end_ns)

    def _record_what_runs(self, now_ns: int) -> None:
        """Take down the batch that begins now, after what is scheduled at this instant."""
        if not self._in_flight or self._in_flight[0].is_recorded:
            return
        batch = self._in_flight[0]
        batch.is_recorded = True
        preempted = self.scheduler.num_preemptions - self._num_preemptions
        self._num_preemptions += preempted
        self.recorder.step(
            batch.start_ns, batch.end_ns, batch.work, self.scheduler, self.manager, preempted
        )

    def _tell_time(self, now_ns: int) -> None:
        if self.on_step is not None:
            self.on_step(now_ns)

    def _end(self, request: Request, outcome: str, now_ns: int, reason: str | None) -> None:
        self._num_changes += 1
        self._tell_end(request, outcome, now_ns, reason)

    def _tell_end(self, request: Request, outcome: str, now_ns: int, reason: str | None) -> None:
        request.finish_ns = now_ns
        request.outcome = outcome
        request.reason = reason
        self.recorder.request_done(request, outcome, reason)

    # -- the end -------------------------------------------------------------------------------
    def give_up_all(self) -> list[Request]:
        """End what is still there as ``stuck``, with the reason why nothing can go on."""
        left = list(self.scheduler.requests.values())
        for request in left:
            request.outcome, request.reason = "stuck", self._why_stuck(request)
            self.recorder.request_done(request, "stuck", request.reason)
        return left

    def _why_stuck(self, request: Request) -> str:
        pool = self.manager.block_pool
        free, usable = pool.get_num_free_blocks(), self.admission.num_usable_blocks
        state = f"{request.status.name.lower()} with {request.num_tokens:,} tokens"
        if request in self._hopeless:
            return f"{state}: it does not fit the whole pool of {usable:,} blocks"
        if request.status is RequestStatus.RUNNING:
            return f"{state}: no step can take any of them"
        scheduler = self.scheduler
        queue = scheduler.policy.next_queue(scheduler.waiting, scheduler.skipped_waiting)
        first = next(iter(queue), request)
        if first is not request:
            return f"{state} behind {first.request_id}"
        needed = self.admission.admission_need(request)
        return f"{state}: it needs {needed:,} blocks at once, {free:,} of {usable:,} are free"
