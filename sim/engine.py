"""The engine in simulated time: the only place of ``sim`` that knows SimPy.

At one instant: the step that ends is applied first, then all arrivals, aborts and whatever they
trigger at that instant, and last the next step is scheduled. With asynchronous scheduling another
step is in flight then; while one is, nothing is scheduled before it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import simpy

from sim.engine_core import EngineCore
from sim.errors import ConfigError
from sim.request import OpenLoop, Outcome, Request, RequestSpec, Submission

Submit = Callable[[RequestSpec], Submission]

# The order of events at one instant; SimPy's own are URGENT = 0 and NORMAL = 1.
STEP_END = -1
SCHEDULE = 2

_AHEAD = 256
"""Requests that a core is told of before they arrive."""


class Engine:
    """Turns submissions into requests, and the core's answers into events.

    SimPy sees one event for each time that the core wakes (each step's end, or fewer: see
    ``EngineCore.advance``), one for each moment of a request that somebody asks for, and those of
    the workload. The clock, ``env.now``, is whole nanoseconds.

    prefix_ids : spec -> the identities of its hash blocks (sim.prefix_ids.PrefixIds)
    on_end : called with each request that ended, once, in the order in which they ended
    num_encoder_tokens : of a request that names none
    env : a clock that others share; None makes one
    on_arrival : called with each request, before it is taken or rejected
    """

    def __init__(
        self,
        core: EngineCore,
        prefix_ids: Callable[[RequestSpec], Sequence[int]],
        on_end: Callable[[Request], None] = lambda request: None,
        num_encoder_tokens: int = 0,
        env: simpy.Environment | None = None,
        on_arrival: Callable[[Request], None] = lambda request: None,
    ):
        self.env = simpy.Environment(initial_time=0) if env is None else env
        self.core = core
        self._prefix_ids = prefix_ids
        self._on_end = on_end
        self._on_arrival = on_arrival
        self._num_encoder_tokens = num_encoder_tokens
        self._submissions: dict[str, Submission] = {}
        self._aborts: list[Submission] = []
        self._is_scheduled = False  # at this instant, when everything else has happened

    def run(self, process: Callable[[simpy.Environment, Submit], Any] | None = None) -> None:
        """Run until no event is left; ``process(env, submit)`` is a workload to start with."""
        if process is not None:
            whole = process(self.env, self.submit)
            if self._can_be_told_ahead(whole):
                whole = self._submit_ahead(whole.arrivals)
            self.env.process(whole)
        self.env.run()

    def _can_be_told_ahead(self, process: Any) -> bool:
        """Whether all that a process does is to submit requests to this engine, and it can wait."""
        if not isinstance(process, OpenLoop) or process.submit != self.submit:
            return False
        return getattr(self.core, "knows_arrivals_ahead", False)

    def _submit_ahead(self, arrivals: Iterator[tuple[int, RequestSpec]]) -> Any:
        """Submit a workload that waits for nothing, some requests at a time, with their instants.

        So the core is entered seldom. A SimPy process that waits for the last of those instants
        before it tells the core of more.
        """
        while batch := list(islice(arrivals, _AHEAD)):
            for at_ns, spec in batch:
                at_ns = max(at_ns, self.env.now)
                if spec.request_id in self._submissions and at_ns > self.env.now:
                    # By then the one before it may have ended.
                    yield self.env.timeout(at_ns - self.env.now)
                self._submit(spec, at_ns)
            if at_ns > self.env.now:
                yield self.env.timeout(at_ns - self.env.now)
                self._schedule_soon()

    # -- what workloads call -------------------------------------------------------------------
    def submit(self, spec: RequestSpec) -> Submission:
        """Hand a request to the engine now; return its events and the way to abort it.

        Raises ConfigError if a request with this id has not ended.
        """
        return self._submit(spec, self.env.now)

    def _submit(self, spec: RequestSpec, at_ns: int) -> Submission:
        if spec.request_id in self._submissions:
            raise ConfigError.one("request_id", spec.request_id, "an id that is not in use")
        request = _request(spec, at_ns, self._num_encoder_tokens)
        submission = Submission(spec, self._make_event, self._abort, request)
        self._submissions[spec.request_id] = submission
        self._on_arrival(request)
        if self.core.add(request, partial(self._prefix_ids, spec)) is None:
            self._schedule_soon()
        else:
            self._deliver(request)
        return submission

    def _make_event(self, submission: Submission, moment: str) -> simpy.Event:
        """Make the event of a moment; the core shall stop there if it is to come.

        A moment of this very instant is not in the past: its event is about to be processed.
        """
        event = simpy.Event(self.env)
        request: Any = submission.request
        if request.finish_ns < 0:
            self.core.watch(request, moment == "first_token")
        if moment == "first_token" and request.first_token_ns >= 0:
            self._happens(event, request.first_token_ns, request.first_token_ns)
        elif moment == "done" and request.finish_ns >= 0:
            self._happens(event, request.finish_ns, _outcome(request))
        return event

    def _happens(self, event: simpy.Event, at_ns: int, value: Any) -> None:
        """Let an event succeed at its time; before now means that it has been processed."""
        event._ok, event._value = True, value
        if at_ns < self.env.now:
            event.callbacks = None
        else:
            self.env.schedule(event, delay=at_ns - self.env.now)

    def _abort(self, submission: Submission) -> None:
        """End a request between two steps, as the engine does: during one, when it ends.

        A request that has ended by then is left alone, also if its id is in use again.
        """
        request_id = submission.spec.request_id
        if self._submissions.get(request_id) is not submission:
            return
        if self.core.is_busy and not self._is_scheduled:
            self._aborts.append(submission)
            return
        request = self.core.abort(request_id, self.env.now)
        if request is not None:
            self._deliver(request)
            self._schedule_soon()

    # -- what the clock calls ------------------------------------------------------------------
    def _at(self, time_ns: int, priority: int, action: Callable[[Any], None]) -> None:
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        event.callbacks.append(action)
        self.env.schedule(event, priority=priority, delay=time_ns - self.env.now)

    def _schedule_soon(self) -> None:
        """Schedule at this instant, unless a step is in flight or it is about to be done."""
        if not self.core.is_busy and not self._is_scheduled:
            self._is_scheduled = True
            self._at(self.env.now, SCHEDULE, self._schedule)

    def _schedule(self, _: Any = None) -> None:
        """Let the core go on, up to the next event of anybody else."""
        self._is_scheduled = False
        advance = self.core.advance(self.env.now, self._horizon())
        for request in advance.ended:
            self._deliver(request)
        if advance.wake_ns is not None:
            self._at(advance.wake_ns, STEP_END, self._step_end)
        elif (next_ns := getattr(self.core, "next_arrival_ns", None)) is not None:
            self._at(next_ns, SCHEDULE, self._resume)

    def _resume(self, _: Any) -> None:
        """Go on with requests that the core was told of ahead, unless it has gone on already."""
        if not self.core.is_busy and not self._is_scheduled:
            self._schedule()

    def _horizon(self) -> float:
        """Return a time before which nobody comes to this engine."""
        return self.env.peek()

    def _step_end(self, _: Any) -> None:
        completed = self.core.complete(self.env.now)
        self._is_scheduled = self.core.is_busy or self.core.has_requests
        for request in completed.first_tokens:
            event = self._submissions[request.request_id].first_token_event
            if event is not None:
                self._happens(event, request.first_token_ns, request.first_token_ns)
        for request in completed.ended:
            self._deliver(request)
        aborts, self._aborts = self._aborts, []
        for submission in aborts:
            self._abort(submission)
        if self._is_scheduled:
            self._schedule_last()

    def _schedule_last(self) -> None:
        """Schedule after everything else of this instant; at once if nothing else is to come."""
        if self.env.peek() > self.env.now:
            self._schedule()
        else:
            self._at(self.env.now, SCHEDULE, self._schedule)

    def _deliver(self, request: Request) -> None:
        """Tell that a request has ended, or will have by the time its event is processed."""
        submission = self._submissions.pop(request.request_id)
        self._on_end(request)
        if submission.done_event is not None:
            self._happens(submission.done_event, request.finish_ns, _outcome(request))


def _request(spec: RequestSpec, arrival_ns: int, num_encoder_tokens: int) -> Request:
    """Make the scheduler's record; identities follow if the request is taken."""
    return Request(
        request_id=spec.request_id,
        num_prompt_tokens=spec.num_prompt_tokens,
        max_tokens=spec.num_output_tokens if spec.max_tokens is None else spec.max_tokens,
        stop_after=_stop_after(spec),
        lora_name=spec.lora_name,
        num_encoder_tokens=spec.num_encoder_tokens or num_encoder_tokens,
        arrival_ns=arrival_ns,
        priority=spec.priority,
        session_id=spec.session_id,
        tags=spec.tags,
    )


def _stop_after(spec: RequestSpec) -> int | None:
    """An output shorter than the engine's limit ends with EOS."""
    is_short = spec.max_tokens is not None and spec.num_output_tokens < spec.max_tokens
    return spec.num_output_tokens if is_short else None


def _outcome(request: Request) -> Outcome:
    first: Any = request.first_token_ns
    return Outcome(
        request_id=request.request_id,
        status=request.outcome,
        arrival_ns=request.arrival_ns,
        first_token_ns=first if first >= 0 else None,
        finish_ns=request.finish_ns,
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=request.num_output_tokens,
        num_cached_tokens=max(request.num_cached_tokens, 0),
        reason=request.reason,
    )
