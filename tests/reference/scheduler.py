"""First come, first served, one step at a time. Source: spec/manager.md 6."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sim.request import Request, RequestStatus
from sim.scheduler.output import Scheduled, SchedulerOutput
from tests.reference.kv_cache_manager import KVCacheManager


@dataclass(frozen=True)
class SchedulerLimits:
    """Settings of a scheduler, under vLLM's names."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True


class Scheduler:
    """Running requests first, then the waiting ones in order of arrival."""

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
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.finished_req_ids: list[str] = []

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    # -- one step -----------------------------------------------------------------------
    def schedule(self) -> SchedulerOutput:
        output = SchedulerOutput()
        budget = self.limits.max_num_batched_tokens
        self.kv_cache_manager.new_step_starts()
        budget = self._schedule_running(output, budget)
        if not output.preempted:
            self._schedule_waiting(output, budget)
        for request, _, num_tokens in output.scheduled:
            request.num_computed_tokens += num_tokens
        output.finished_req_ids = self.finished_req_ids
        self.finished_req_ids = []
        return output

    def _capped(self, num_tokens: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        return threshold if 0 < threshold < num_tokens else num_tokens

    def _schedule_running(self, output: SchedulerOutput, budget: int) -> int:
        i = 0
        while i < len(self.running) and budget > 0:
            request = self.running[i]
            computed = request.num_computed_tokens
            num_new = min(self._capped(request.num_tokens - computed), budget)
            num_new = min(num_new, self.limits.max_model_len - computed - 1)
            num_new = self.mamba_block_aligned_split(request, computed, num_new)
            if num_new <= 0:
                i += 1
                continue
            new_blocks = self._allocate_or_preempt(request, num_new, output)
            if new_blocks is None:
                break
            output.scheduled.append(Scheduled(request, computed, num_new))
            if any(new_blocks):
                output.new_block_ids[request.request_id] = new_blocks
            budget -= num_new
            i += 1
        return budget

    def _allocate_or_preempt(self, request: Request, num_new: int, output: SchedulerOutput):
        while True:
            new_blocks = self.kv_cache_manager.allocate_slots(request, num_new)
            if new_blocks is not None:
                return new_blocks
            victim = self.running.pop()
            self._preempt(victim)
            output.preempted.append(victim)
            if victim is request:
                return None

    def _preempt(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.insert(0, request)

    def _schedule_waiting(self, output: SchedulerOutput, budget: int) -> None:
        while self.waiting and budget > 0:
            if len(self.running) >= self.limits.max_num_seqs:
                break
            request = self.waiting[0]
            hits, computed = self.kv_cache_manager.get_computed_blocks(request)
            hint = self.kv_cache_manager.coordinator.num_uncached_common_prefix_tokens
            num_new = self._capped(request.num_tokens - computed)
            if not self.limits.enable_chunked_prefill and num_new > budget:
                break
            num_new = min(num_new, budget)
            num_new = self.mamba_block_aligned_split(request, computed, num_new, hint)
            if num_new <= 0:
                break
            new_blocks = self.kv_cache_manager.allocate_slots(
                request,
                num_new,
                num_new_computed_tokens=computed,
                new_computed_blocks=hits,
                full_sequence_must_fit=self.limits.scheduler_reserve_full_isl,
                has_scheduled_reqs=bool(self.running),
            )
            if new_blocks is None:
                break
            self._admit(request, computed, num_new, output)
            budget -= num_new

    def _admit(self, request: Request, computed: int, num_new: int, output: SchedulerOutput):
        self.waiting.pop(0)
        self.running.append(request)
        resumed = request.status is RequestStatus.PREEMPTED
        (output.resumed if resumed else output.admitted).append(request)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = computed
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = computed
        table = self.kv_cache_manager.get_block_ids(request.request_id)
        output.new_block_ids[request.request_id] = table
        output.scheduled.append(Scheduled(request, computed, num_new))

    def mamba_block_aligned_split(
        self, request: Request, computed: int, num_new: int, hint: int = 0
    ) -> int:
        """Cut a chunk where a recurrent state can be kept (6.8)."""
        size = self.mamba_align_block_size
        if size is None:
            return num_new
        if computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return num_new
        last = request.num_tokens // size * size
        if self.use_eagle:
            last = max(last - size, 0)
        end = computed + num_new
        if end < last:
            num_new = num_new // size * size
        elif computed < last < end:
            num_new = last - computed
        if hint >= size and num_new > hint:
            num_new = hint // size * size
        return num_new

    # -- after the step -----------------------------------------------------------------
    def update_from_output(self, output: SchedulerOutput) -> list[Request]:
        finished = []
        for request, computed, num_new in output.scheduled:
            # A request that was preempted since the step was scheduled still gets its token.
            if request.status.is_finished or computed + num_new != request.num_tokens:
                continue
            request.num_tokens += 1
            if request.num_output_tokens == 1:
                output.first_tokens.append(request)
            too_long = request.num_tokens >= self.limits.max_model_len
            if too_long or request.num_output_tokens >= request.max_tokens:
                self.finish_requests([request.request_id], RequestStatus.FINISHED_LENGTH_CAPPED)
                finished.append(request)
        return finished

    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> None:
        ending = [self.requests[i] for i in request_ids if i in self.requests]
        self.running = [r for r in self.running if r not in ending]
        self.waiting = [r for r in self.waiting if r not in ending]
        for request in ending:
            request.status = status
            self.finished_req_ids.append(request.request_id)
            self.kv_cache_manager.free(request)
            del self.requests[request.request_id]

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        while reset_running_requests and self.running:
            self._preempt(self.running.pop())
        done = self.kv_cache_manager.reset_prefix_cache()
        if reset_running_requests and not done:
            raise RuntimeError("the prefix cache could not be reset")
        return done
