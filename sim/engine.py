"""The engine in simulated time: the only place of ``sim`` that knows SimPy.

At one instant: the step that ends is applied first, then all arrivals, aborts and whatever they
trigger at that instant, and last the next step is scheduled. With asynchronous scheduling another
step is in flight then; while one is, nothing is scheduled before it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import simpy

from sim.engine_core import EngineCore
from sim.errors import ConfigError
from sim.request import Outcome, Request, RequestSpec, Submission

Submit = Callable[[RequestSpec], Submission]

# The order of events at one instant; SimPy's own are URGENT = 0 and NORMAL = 1.
STEP_END = -1
SCHEDULE = 2


class Engine:
    """Turns submissions into requests, and the core's answers into events.

    SimPy sees at most one event per engine step, per arrival and per end of a request. The clock,
    ``env.now``, is whole nanoseconds.

    prefix_ids : spec -> the identities of its hash blocks (sim.request.PrefixIds)
    on_end : called with each request that ended
    """

    def __init__(
        self,
        core: EngineCore,
        prefix_ids: Callable[[RequestSpec], Sequence[int]],
        on_end: Callable[[Request], None] = lambda request: None,
        num_encoder_tokens: int = 0,
    ):
        self.env = simpy.Environment(initial_time=0)
        self.core = core
        self._prefix_ids = prefix_ids
        self._on_end = on_end
        self._num_encoder_tokens = num_encoder_tokens  # of a request that names none
        self._submissions: dict[str, Submission] = {}
        self._aborts: list[Submission] = []
        self._is_scheduled = False

    def run(self, process: Callable[[simpy.Environment, Submit], Any] | None = None) -> None:
        """Run until no event is left; ``process(env, submit)`` is a workload to start with."""
        if process is not None:
            self.env.process(process(self.env, self.submit))
        self.env.run()

    # -- what workloads call -------------------------------------------------------------------
    def submit(self, spec: RequestSpec) -> Submission:
        """Hand a request to the engine now; return its events and the way to abort it.

        Raises ConfigError if a request with this id has not ended.
        """
        env = self.env
        if spec.request_id in self._submissions:
            raise ConfigError.one("request_id", spec.request_id, "an id that is not in use")
        submission = Submission(spec, env.event(), env.event(), lambda: self._abort(submission))
        self._submissions[spec.request_id] = submission
        request = _request(spec, env.now, self._num_encoder_tokens)
        if self.core.add(request) is None:
            request.prefix_ids = self._prefix_ids(spec)
            self._schedule_soon()
        else:
            self._deliver(request)
        return submission

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
    def _at(self, delay_ns: int, priority: int, action: Callable[[], None]) -> None:
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: action())
        self.env.schedule(event, priority=priority, delay=delay_ns)

    def _schedule_soon(self) -> None:
        """Schedule at this instant, unless a step is in flight or it is about to be done."""
        if not self.core.is_busy and not self._is_scheduled:
            self._schedule_last()

    def _schedule_last(self) -> None:
        self._is_scheduled = True
        self._at(0, SCHEDULE, self._schedule)

    def _schedule(self) -> None:
        self._is_scheduled = False
        advance = self.core.advance(self.env.now, self.env.peek())
        for request in advance.ended:
            self._deliver(request)
        if advance.wake_ns is not None:
            self._at(advance.wake_ns - self.env.now, STEP_END, self._step_end)

    def _step_end(self) -> None:
        completed = self.core.complete(self.env.now)
        if self.core.is_busy or self.core.has_requests:
            self._schedule_last()
        for request in completed.first_tokens:
            self._submissions[request.request_id].first_token.succeed(request.first_token_ns)
        for request in completed.ended:
            self._deliver(request)
        aborts, self._aborts = self._aborts, []
        for submission in aborts:
            self._abort(submission)

    def _deliver(self, request: Request) -> None:
        submission = self._submissions.pop(request.request_id)
        self._on_end(request)
        submission.done.succeed(_outcome(request))


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
