"""A scheduler that is two: ours decides, vLLM's is asked the same, and both must agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from sim.contents import Contents
from sim.core.kv_events import KVEventLog
from sim.request import Request, RequestStatus
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.scheduler import Scheduler
from sim.vllm.compare_steps import of_ended, of_outputs
from sim.vllm.comparison import Comparison
from sim.vllm.difference import Difference
from sim.vllm.hash_names import HashNames
from sim.vllm.mirrored_requests import MirroredRequests
from sim.vllm.names import scheduler_names
from sim.vllm.stepping import apply_output, ended_requests, set_drafts


class MirrorScheduler:
    """Stands before our Scheduler, repeats every call on vLLM's, and compares after each.

    What changes nothing is our scheduler's alone.

    raw : vLLM's Scheduler, as ``build_scheduler`` makes it; log : the events of our manager, None
    leaves them out; every : the whole state is compared at every so many steps, all the rest after
    each call.

    Raises Divergence, with the account, at the first difference.
    """

    def __init__(
        self,
        ours: Scheduler,
        raw: Any,
        contents: Contents,
        hash_block_size: int,
        log: KVEventLog | None = None,
        every: int = 1,
    ):
        self.ours = ours
        self.raw = raw
        names = HashNames()
        is_hashed = ours.kv_cache_manager.enable_caching
        self.comparison = Comparison(ours, raw, names, log, every)
        self._requests = MirroredRequests(raw, contents, names, hash_block_size, is_hashed)
        self._in_flight: deque[tuple[SchedulerOutput, Any]] = deque()
        self._num_sampled: dict[str, int] = {}
        self._ask_num_sampled = ours.num_sampled
        ours.num_sampled = self._count_sampled

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ours, name)

    def at(self, now_ns: int) -> None:
        """A step is about to be scheduled."""
        self.comparison.now_ns = now_ns

    def finish(self) -> None:
        """Compare the whole state at the end."""
        self.comparison.check("the end", whole=True)

    # -- requests come and go ----------------------------------------------------------------
    def add_request(self, request: Request) -> None:
        """Append a new request; vLLM's scheduler gets it before its next call."""
        self.ours.add_request(request)
        self._requests.add_later(request)
        self.comparison.counts["requests"] += 1

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus
    ) -> list[Request]:
        """End requests from outside, on both sides."""
        self._requests.flush()
        ids = [request_ids] if isinstance(request_ids, str) else request_ids
        ids = None if ids is None else list(ids)
        ended = self.ours.finish_requests(ids, finished_status)
        status = scheduler_names().RequestStatus[finished_status.name]
        call = "finish_requests()"
        theirs = self.comparison.ask(call, lambda: self.raw.finish_requests(ids, status))
        mine, other = [r.request_id for r in ended], [request_id for request_id, _ in theirs]
        self._requests.forget(mine)
        self.comparison.check(call, _of_values("requests that ended", mine, other))
        return ended

    # -- one step ----------------------------------------------------------------------------
    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Let both decide the next step."""
        self._requests.flush()
        self.comparison.step += 1
        ours = self.ours.schedule(throttle_prefills)
        call = "schedule()"
        theirs = self.comparison.ask(call, lambda: self.raw.schedule(throttle_prefills))
        self._in_flight.append((ours, theirs))
        self.comparison.counts["steps"] += bool(ours.scheduled)
        self.comparison.check(call, of_outputs(ours, theirs))
        return ours

    def _count_sampled(self, request: Request, num_drafts: int) -> int:
        count = self._ask_num_sampled(request, num_drafts)
        self._num_sampled[request.request_id] = count
        return count

    def update_from_output(self, output: SchedulerOutput) -> list[Request]:
        """Apply the outputs of a step on both sides: as many tokens, the same ones."""
        self._requests.flush()
        theirs = self._their_output(output)
        self._num_sampled.clear()
        sampled = self._requests.sampled_in(output)
        ended = self.ours.update_from_output(output)
        tokens = {r.request_id: sampled(r, self._num_sampled) for r, _, _ in output.scheduled}
        self.comparison.before_drain()
        call = "update_from_output()"
        result = self.comparison.ask(call, lambda: apply_output(self.raw, theirs, tokens))
        self._requests.learn(output)
        self._requests.forget([request.request_id for request in ended])
        self.comparison.check(call, of_ended(ended, ended_requests(result)))
        return ended

    def _their_output(self, output: SchedulerOutput) -> Any:
        """Return vLLM's output of the same step; those before it that nobody asked for go."""
        while True:
            ours, theirs = self._in_flight.popleft()
            if ours is output:
                return theirs

    def update_draft_token_ids(self, num_drafts: Mapping[str, int]) -> None:
        """Tell both how many drafts each request has for the next step."""
        self.ours.update_draft_token_ids(num_drafts)
        set_drafts(self.raw, num_drafts)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Empty the cache index on both sides."""
        self._requests.flush()
        done = self.ours.reset_prefix_cache(reset_running_requests)
        call = "reset_prefix_cache()"
        theirs = self.comparison.ask(
            call, lambda: self.raw.reset_prefix_cache(reset_running_requests)
        )
        self.comparison.check(call, _of_values("was reset", done, theirs))
        return done


def _of_values(what: str, ours: Any, theirs: Any) -> Difference | None:
    return None if ours == theirs else Difference(what, ours, theirs)
