"""EngineCore: the one door between simulated time and decisions."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sim.core.integrity import check_integrity
from sim.errors import ConfigError
from sim.latency.work import StepTime, StepWork
from sim.request import Request, RequestStatus
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.scheduler import Scheduler

LAST_NS = 1 << 62
"""Times beyond it do not fit the result tables' 64 bits."""


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
    """What a stretch of steps brought.

    ended : requests that finished, or were given up; their ``outcome`` says which
    first_tokens : requests that got their first token
    wake_ns : when the last step ends, or None if nothing can be done before something arrives
    """

    ended: list[Request]
    first_tokens: list[Request]
    wake_ns: int | None


class EngineCore:
    """Schedules, asks for the step's duration, applies its outputs.

    Requests that can never fit are refused at ``add`` (``reject_unschedulable``), as a server in
    front of the engine would; otherwise they wait for ever, as in vLLM (spec/manager.md D.8).

    ``check_every`` recounts the whole state every so many steps (0: never).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        step_time: StepTime,
        recorder: StepRecorder,
        reject_unschedulable: bool = True,
        check_every: int = 0,
    ):
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.step_time = step_time
        self.recorder = recorder
        self.reject_unschedulable = reject_unschedulable
        self.check_every = check_every
        self.num_steps = 0
        self._num_preemptions = 0  # those that a recorded step has told about
        self._num_changes = 0  # requests that came or went
        self._hopeless: tuple[Request, int, int] | None = None

    # -- requests come and go ----------------------------------------------------------------
    def add(self, request: Request) -> str | None:
        """Take a request, or return why it is rejected."""
        reason = self.refusal(request)
        if reason is None:
            self._num_changes += 1
            self.scheduler.add_request(request)
        else:
            self._end(request, "rejected", request.arrival_ns, reason)
        return reason

    def refusal(self, request: Request) -> str | None:
        """Return why a request can never be served, None if it may be."""
        limit = self.scheduler.limits.max_model_len
        if request.num_prompt_tokens < 1:
            return "the prompt is empty"
        if request.num_prompt_tokens >= limit:
            return f"prompt of {request.num_prompt_tokens:,} tokens, max_model_len {limit:,}"
        if not self.reject_unschedulable:
            return None
        total = request.num_prompt_tokens + request.max_tokens
        if total > limit:
            return f"prompt and output of {total:,} tokens, max_model_len {limit:,}"
        return self._lack_of_blocks(request, total)

    def _lack_of_blocks(self, request: Request, total: int) -> str | None:
        """Compare what the request needs when it is alone with the whole pool."""
        usable = self.manager.block_pool.num_gpu_blocks - 1
        needed = self._decode_need(request, total)
        if self.scheduler.limits.scheduler_reserve_full_isl:
            needed = max(needed, self._admission_need(request))
        if needed <= usable:
            return None
        return f"{total:,} tokens need {needed:,} blocks, the pool has {usable:,}"

    def _admission_need(self, request: Request) -> int:
        """Blocks that the admission gate asks for before anything is computed."""
        num_tokens, empty = request.num_prompt_tokens, self.manager.empty_kv_cache_blocks
        return self.manager.coordinator.get_num_blocks_to_allocate(
            request.request_id, num_tokens, empty, 0, num_tokens, apply_admission_cap=True
        )

    def _decode_need(self, request: Request, total: int) -> int:
        """Most blocks at once from the last prompt token on; the last token is only sampled.

        Full attention grows, windows go up and down by one within a block: the most is reached in
        the last block's worth of tokens.
        """
        coordinator = self.manager.coordinator
        first = max(request.num_prompt_tokens, total - coordinator.scheduler_block_size) - 1
        counts = range(first, total - 1)
        return max(map(coordinator.num_blocks_held, counts), default=0)

    def abort(self, request_id: str, now_ns: int) -> Request | None:
        """End a request from outside; return it, or None if it is unknown or has ended."""
        ended = self.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)
        for request in ended:
            self._end(request, "aborted", now_ns, None)
        return ended[0] if ended else None

    @property
    def has_requests(self) -> bool:
        """True while a request waits or runs."""
        return bool(self.scheduler.requests)

    # -- time passes ---------------------------------------------------------------------------
    def advance(self, now_ns: int, horizon_ns: float) -> Advance:
        """Take at least one step that begins at ``now_ns``; none may begin after ``horizon_ns``.

        Nothing arrives before ``horizon_ns``, so a core may take several steps at once; this one
        takes one. A step that schedules nothing takes no time; it is repeated only if it preempted
        something, for then the state has changed.
        """
        given_up: list[Request] = []
        while True:
            output = self.scheduler.schedule()
            if output.scheduled:
                return self._finish_step(output, now_ns, given_up)
            if not output.preempted or self._is_hopeless(output, now_ns, given_up):
                return Advance(given_up, [], None)

    def _is_hopeless(self, output: SchedulerOutput, now_ns: int, given_up: list[Request]) -> bool:
        """Deal with a request that failed although it had the whole pool to itself.

        It is given up, or, if it may wait for ever, tried again; it is hopeless when it fails a
        second time at the same token and nothing has ended or arrived in between.
        """
        pool, request = self.manager.block_pool, output.preempted[-1]
        if pool.get_num_free_blocks() < pool.num_gpu_blocks - 1:
            return False
        if not self.reject_unschedulable:
            again = (request, request.num_tokens, self._num_changes)
            before, self._hopeless = self._hopeless, again
            return before == again
        self.scheduler.finish_requests([request.request_id], RequestStatus.FINISHED_IGNORED)
        reason = f"{request.num_tokens:,} tokens do not fit the whole pool"
        self._end(request, "rejected", now_ns, reason)
        given_up.append(request)
        return False

    def _finish_step(
        self, output: SchedulerOutput, now_ns: int, given_up: list[Request]
    ) -> Advance:
        work = StepWork(output.prefill, output.decode)
        end_ns = now_ns + self.step_time(work)
        if end_ns > LAST_NS:
            raise ConfigError.one("latency", f"{end_ns} ns", "simulated time within 146 years")
        for request in output.admitted:
            request.first_scheduled_ns = now_ns
        self._record(now_ns, end_ns, work)
        finished = self.scheduler.update_from_output(output)
        for request in output.first_tokens:
            request.first_token_ns = end_ns
        for request in finished:
            self._end(request, "finished", end_ns, None)
        self.num_steps += 1
        if self.check_every and self.num_steps % self.check_every == 0:
            check_integrity(self.manager)
        return Advance(given_up + finished, output.first_tokens, end_ns)

    def _record(self, start_ns: int, end_ns: int, work: StepWork) -> None:
        preempted = self.scheduler.num_preemptions - self._num_preemptions
        self._num_preemptions += preempted
        self.recorder.step(start_ns, end_ns, work, self.scheduler, self.manager, preempted)

    def _end(self, request: Request, outcome: str, now_ns: int, reason: str | None) -> None:
        self._num_changes += 1
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
        free, usable = pool.get_num_free_blocks(), pool.num_gpu_blocks - 1
        state = f"{request.status.name.lower()} with {request.num_tokens:,} tokens"
        if self._hopeless is not None and self._hopeless[0] is request:
            return f"{state}: it does not fit the whole pool of {usable:,} blocks"
        first = next(iter(self.scheduler.waiting), request)
        if first is not request:
            return f"{state} behind {first.request_id}"
        needed = self._admission_need(request)
        return f"{state}: it needs {needed:,} blocks at once, {free:,} of {usable:,} are free"
