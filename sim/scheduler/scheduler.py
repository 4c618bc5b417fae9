"""Which request computes how many tokens in the next step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sim.core.kv_cache_manager import KVCacheManager
from sim.errors import InvariantError
from sim.request import Request, RequestStatus
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.request_queue import FCFSRequestQueue


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Limits of a step and of a request, in tokens and requests. Source: spec/manager.md 6.1."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True


class Scheduler:
    """Running requests first, then waiting ones in order, within a budget of tokens.

    mamba_align_block_size : the block size that prefill chunks must end on (Mamba mode ``align``),
    or None.

    Source: spec/manager.md 6 (vLLM 0.25.1 ``Scheduler``): first come first served, synchronous,
    preemption by recomputation; without encoders, adapters, connectors and speculation.
    """

    def __init__(
        self,
        kv_cache_manager: KVCacheManager,
        limits: SchedulerLimits,
        mamba_align_block_size: int | None = None,
        use_eagle: bool = False,
    ):
        self.kv_cache_manager = kv_cache_manager
        self.limits = limits
        self.mamba_align_block_size = mamba_align_block_size
        self.use_eagle = use_eagle
        self.requests: dict[str, Request] = {}
        self.waiting = FCFSRequestQueue()
        self.running: list[Request] = []
        self.finished_req_ids: list[str] = []
        self.num_preemptions = 0

    # -- requests come and go ----------------------------------------------------------------
    def add_request(self, request: Request) -> None:
        """Append a new request to the waiting ones; an id that is in use is an error."""
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        self.requests[request.request_id] = request
        self.waiting.add_request(request)

    def finish_requests(
        self, request_ids: Iterable[str], finished_status: RequestStatus
    ) -> list[Request]:
        """End requests from outside, in any state; unknown ids are ignored. Return those ended."""
        ended = [self.requests[i] for i in request_ids if i in self.requests]
        self.waiting.remove_requests(ended)
        for request in ended:
            self._finish(request, finished_status)
        self._drop_finished()
        return ended

    def _finish(self, request: Request, status: RequestStatus) -> None:
        request.status = status
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]
        self.finished_req_ids.append(request.request_id)

    def _drop_finished(self) -> None:
        running = RequestStatus.RUNNING
        self.running = [r for r in self.running if r.status is running]

    # -- one step ----------------------------------------------------------------------------
    def schedule(self) -> SchedulerOutput:
        """Decide the next step, take its blocks, and count its tokens as computed."""
        output = SchedulerOutput(finished_req_ids=self.finished_req_ids)
        self.finished_req_ids = []
        self.kv_cache_manager.new_step_starts()
        budget = self._schedule_running(output, self.limits.max_num_batched_tokens)
        if not output.preempted:
            budget = self._schedule_waiting(output, budget)
        if budget < 0 or len(self.running) > self.limits.max_num_seqs:
            raise InvariantError(
                f"budget left {budget} < 0 or running {len(self.running)} > "
                f"max_num_seqs {self.limits.max_num_seqs}"
            )
        return output

    def _schedule_running(self, output: SchedulerOutput, budget: int) -> int:
        """Give running requests their tokens, in order of admission; return the budget left."""
        manager = self.kv_cache_manager
        idx = 0
        while idx < len(self.running) and budget > 0:
            request = self.running[idx]
            idx += 1
            computed = request.num_computed_tokens
            num_new = request.num_tokens - computed
            if num_new == 1 and computed + 1 < request.quiet_until:
                # Most decode steps: no block is taken, registered or given back.
                self._record(output, request, computed, 1)
                budget -= 1
                continue
            num_new = self._running_chunk(request, num_new, budget)
            if num_new <= 0:
                continue
            new_blocks = self._allocate_or_preempt(request, num_new, output)
            if new_blocks is None:
                break
            if new_blocks is not manager.empty_kv_cache_blocks and any(new_blocks):
                output.new_block_ids[request.request_id] = new_blocks
            self._record(output, request, computed, num_new)
            budget -= num_new
        return budget

    def _running_chunk(self, request: Request, num_new: int, budget: int) -> int:
        computed = request.num_computed_tokens
        # One position of the model's length is kept for the token that will be sampled.
        room = self.limits.max_model_len - computed - 1
        num_new = min(self._below_threshold(num_new), budget, room)
        if self.mamba_align_block_size and num_new > 0:
            num_new = self.mamba_block_aligned_split(request, computed, num_new)
        return num_new

    def _below_threshold(self, num_new: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        return threshold if 0 < threshold < num_new else num_new

    def _allocate_or_preempt(
        self, request: Request, num_new: int, output: SchedulerOutput
    ) -> tuple[list[int], ...] | None:
        """Take blocks, preempting from the end of the running list until there are enough.

        Returns None if the request itself had to go.
        """
        while True:
            new_blocks = self.kv_cache_manager.allocate_slots(request, num_new)
            if new_blocks is not None:
                return new_blocks
            victim = self.running.pop()
            self._preempt_request(victim)
            output.preempted.append(victim)
            if victim is request:
                return None

    def _preempt_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.prepend_request(request)

    def _schedule_waiting(self, output: SchedulerOutput, budget: int) -> int:
        """Admit waiting requests until one does not fit: no later one is tried."""
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            num_new = self._admit(self.waiting.peek_request(), budget, output)
            if not num_new:
                break
            budget -= num_new
        return budget

    def _admit(self, request: Request, budget: int, output: SchedulerOutput) -> int:
        """Try to start the first waiting request; return its tokens in this step, 0 if it waits."""
        manager = self.kv_cache_manager
        hits, num_hit = manager.get_computed_blocks(request)
        num_new = self._first_chunk(request, num_hit, budget)
        if num_new <= 0:
            return 0
        new_blocks = manager.allocate_slots(
            request,
            num_new,
            num_hit,
            hits,
            full_sequence_must_fit=self.limits.scheduler_reserve_full_isl,
            has_scheduled_reqs=bool(self.running),
        )
        if new_blocks is None:
            return 0
        self._start(request, num_hit, output)
        self._record(output, request, num_hit, num_new)
        return num_new

    def _first_chunk(self, request: Request, num_hit: int, budget: int) -> int:
        num_new = self._below_threshold(request.num_tokens - num_hit)
        if not self.limits.enable_chunked_prefill and num_new > budget:
            return 0
        num_new = min(num_new, budget)
        if self.mamba_align_block_size:
            uncached = self.kv_cache_manager.coordinator.num_uncached_common_prefix_tokens
            num_new = self.mamba_block_aligned_split(request, num_hit, num_new, uncached)
        return num_new

    def _start(self, request: Request, num_hit: int, output: SchedulerOutput) -> None:
        self.waiting.pop_request()
        self.running.append(request)
        is_resumed = request.status is RequestStatus.PREEMPTED
        (output.resumed if is_resumed else output.admitted).append(request)
        request.status = RequestStatus.RUNNING
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = num_hit
        request_id = request.request_id
        output.new_block_ids[request_id] = self.kv_cache_manager.get_block_ids(request_id)

    @staticmethod
    def _record(output: SchedulerOutput, request: Request, computed: int, num_new: int) -> None:
        output.scheduled.append((request, computed, num_new))
        request.num_computed_tokens = computed + num_new
        if num_new == 1 and computed >= request.num_prompt_tokens:
            output.decode.append(computed)
        else:
            output.prefill.append((computed, num_new))

    def mamba_block_aligned_split(
        self, request: Request, num_computed: int, num_new: int, num_uncached_common: int = 0
    ) -> int:
        """Shorten a prefill chunk so that it ends on a block boundary, where a state is kept.

        num_uncached_common : tokens beyond the hit that other groups know to be shared; the state
        at their end is worth a checkpoint. May return 0: nothing this step.
        Source: spec/manager.md 6.8.
        """
        if num_computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return num_new
        size = self.mamba_align_block_size or 1
        last = request.num_tokens // size * size
        if self.use_eagle:
            last = max(last - size, 0)
        end = num_computed + num_new
        if end < last:
            num_new = num_new // size * size
        elif num_computed < last < end:
            num_new = last - num_computed
        if num_uncached_common >= size and num_new > num_uncached_common:
            num_new = num_uncached_common // size * size
        return num_new

    # -- after the step ------------------------------------------------------------------------
    def update_from_output(self, output: SchedulerOutput) -> list[Request]:
        """Append one token to each request that is computed up to its end; return the finished.

        A request that was ended since the step was scheduled is passed over; one that was
        preempted since then still gets its token. Mutates ``output.first_tokens``.
        Source: spec/manager.md 6.6.
        """
        finished: list[Request] = []
        max_model_len, requests = self.limits.max_model_len, self.requests
        for request, computed, num_new in output.scheduled:
            if computed + num_new < request.num_tokens:
                continue
            if requests.get(request.request_id) is not request:
                continue  # ended since; its id may be in use again
            request.num_tokens = num_tokens = request.num_tokens + 1
            num_output = num_tokens - request.num_prompt_tokens
            if num_output == 1:
                output.first_tokens.append(request)
            if num_output >= request.max_tokens or num_tokens >= max_model_len:
                self._finish(request, RequestStatus.FINISHED_LENGTH_CAPPED)
                finished.append(request)
        if finished:
            self.waiting.remove_requests(finished)
            self._drop_finished()
        return finished

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Empty the cache index; with the flag, preempt everything that runs first.

        Returns whether it was emptied; after a forced preemption a failure is an InvariantError.
        """
        if reset_running_requests:
            while self.running:
                self._preempt_request(self.running.pop())
        done = self.kv_cache_manager.reset_prefix_cache()
        if reset_running_requests and not done:
            raise InvariantError("blocks are in use although nothing runs")
        return done
