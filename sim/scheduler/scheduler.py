"""Which request computes how many tokens in the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from sim.core.kv_cache_manager import KVCacheManager
from sim.errors import InvariantError
from sim.request import Request, RequestStatus
from sim.scheduler.align import block_aligned_split
from sim.scheduler.apply_outputs import apply_outputs
from sim.scheduler.limits import SchedulerLimits, SpecDecodeStats
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.policies import SCHEDULING_POLICIES
from sim.scheduler.request_queue import RequestQueue
from sim.scheduler.step import Step

NEVER = 1 << 62


def _one_token(request: Request, num_drafts: int) -> int:
    return 1


class Scheduler:
    """Running requests first, then waiting ones in order, within a budget of tokens.

    Parameters
    ----------
    mamba_align_block_size : block size that prefill chunks must end on (Mamba mode ``align``), or
        None
    policy : a name of SCHEDULING_POLICIES
    async_scheduling : steps are scheduled before the outputs of the one before are known
    num_spec_tokens : drafts of a request and step; num_lookahead_tokens : slots for the next ones
    max_loras : most adapters in one step; 0: no limit
    num_sampled : asked for each verified request: (request, drafts) -> tokens, 1 to drafts + 1
    fixes : defects of the reference that are mended (Q7 here)

    Source: spec/manager.md 6 (vLLM 0.25.1 ``Scheduler`` and ``AsyncScheduler``): preemption by
    recomputation; without multimodal encoders and connectors.
    """

    def __init__(
        self,
        kv_cache_manager: KVCacheManager,
        limits: SchedulerLimits,
        mamba_align_block_size: int | None = None,
        use_eagle: bool = False,
        *,
        policy: str = "fcfs",
        async_scheduling: bool = False,
        num_spec_tokens: int = 0,
        num_lookahead_tokens: int = 0,
        max_loras: int = 0,
        num_sampled: Callable[[Request, int], int] = _one_token,
        fixes: Set[str] = frozenset(),
    ):
        self.kv_cache_manager = kv_cache_manager
        self.limits = limits
        self.mamba_align_block_size = mamba_align_block_size
        self.use_eagle = use_eagle
        self.policy = SCHEDULING_POLICIES[policy]
        self.async_scheduling = async_scheduling
        self.num_spec_tokens = num_spec_tokens
        self.num_lookahead_tokens = num_lookahead_tokens
        self.max_loras = max_loras
        self.num_sampled = num_sampled
        self.fixes = fixes
        self.requests: dict[str, Request] = {}
        self.waiting: RequestQueue = self.policy.make_queue()
        self.skipped_waiting: RequestQueue = self.policy.make_queue()
        self.running: list[Request] = []
        self.finished_req_ids: list[str] = []
        self.num_preemptions = 0
        self.spec_decode_stats = SpecDecodeStats()
        self._preempted_req_ids: list[str] = []
        self._is_capacity_bound = False
        # Drafts make every decode step a longer one: then all of them are looked at closely.
        self._quiet_tokens = NEVER if num_spec_tokens else 1 + num_lookahead_tokens

    # -- requests come and go ----------------------------------------------------------------
    def add_request(self, request: Request) -> None:
        """Append a new request to the waiting ones; an id that is in use is an error."""
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        self.requests[request.request_id] = request
        request.ends_at = self._last_num_tokens(request)
        queue = self.skipped_waiting if request.status.is_blocked else self.waiting
        queue.add_request(request)

    def _last_num_tokens(self, request: Request) -> int:
        most = request.max_tokens
        if request.stop_after is not None:
            most = min(most, request.stop_after)
        return min(request.num_prompt_tokens + most, self.limits.max_model_len)

    def unblock(self, request_id: str) -> None:
        """What a blocked request waits for (its grammar) is there; unknown ids are ignored."""
        request = self.requests.get(request_id)
        if request is not None and request.status.is_blocked:
            request.status = RequestStatus.WAITING

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus
    ) -> list[Request]:
        """End requests from outside, in any state; unknown ids are ignored. Return those ended.

        None ends all.
        """
        if isinstance(request_ids, str):
            request_ids = [request_ids]
        ids = dict.fromkeys(self.requests if request_ids is None else request_ids)
        ended = [self.requests[i] for i in ids if i in self.requests]
        for request in ended:
            self.end(request, finished_status)
        self.forget(ended)
        return ended

    def end(self, request: Request, status: RequestStatus) -> None:
        """Give back what an ended request holds; it stays in its queue until ``forget``."""
        request.status = status
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]
        self.finished_req_ids.append(request.request_id)

    def forget(self, ended: list[Request], everywhere: bool = True) -> None:
        """Take ended requests out of the queues; of those passed over only if told so."""
        if not ended:
            return
        self.waiting.remove_requests(ended)
        if everywhere:
            self.skipped_waiting.remove_requests(ended)
        running = RequestStatus.RUNNING
        self.running = [r for r in self.running if r.status is running]

    def get_request_counts(self) -> tuple[int, int]:
        """Return how many run and how many wait."""
        return len(self.running), len(self.waiting) + len(self.skipped_waiting)

    # -- one step ----------------------------------------------------------------------------
    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Decide the next step, take its blocks, and count its tokens as computed.

        throttle_prefills : hold prefills back while requests decode, unless the last release of
        prefills left requests waiting.
        """
        output = SchedulerOutput(finished_req_ids=self.finished_req_ids)
        self.finished_req_ids = []
        self.kv_cache_manager.new_step_starts()
        step = Step(output, self.limits.max_num_batched_tokens, False)
        step.defers_prefills = throttle_prefills and self._may_defer_prefills()
        self._schedule_running(step)
        if not output.preempted:
            self._schedule_waiting(step)
        if step.budget < 0 or len(self.running) > self.limits.max_num_seqs:
            raise InvariantError(
                f"budget left {step.budget} < 0 or running {len(self.running)} > "
                f"max_num_seqs {self.limits.max_num_seqs}"
            )
        output.common_prefix = self._common_prefix
        if self._preempted_req_ids:
            output.preempted_req_ids, self._preempted_req_ids = self._preempted_req_ids, []
        return output

    def _may_defer_prefills(self) -> bool:
        if self._is_capacity_bound:
            return False
        return any(not request.is_prefill_chunk for request in self.running)

    def _common_prefix(self) -> list[int]:
        manager = self.kv_cache_manager
        if not self.running:
            return [0] * len(manager.empty_kv_cache_blocks)
        return manager.get_num_common_prefix_blocks(self.running[0].request_id)

    # -- running requests ----------------------------------------------------------------------
    def _schedule_running(self, step: Step) -> None:
        """Give running requests their tokens, in order of admission."""
        running, quiet_tokens, is_async = self.running, self._quiet_tokens, self.async_scheduling
        append, append_decode = step.output.scheduled.append, step.output.decode.append
        place, budget = 0, step.budget
        while place < len(running) and budget > 0:
            request = running[place]
            place += 1
            computed = request.num_computed_tokens
            # Most decode steps: no block is taken, registered or given back, and no limit is near.
            if (
                computed + quiet_tokens < request.quiet_until
                and request.num_tokens + request.num_output_placeholders - computed == 1
            ):
                append((request, computed, 1))
                append_decode(computed)
                request.num_computed_tokens = computed + 1
                if is_async:
                    request.num_output_placeholders += 1
                budget -= 1
                continue
            step.place, step.budget = place, budget
            has_run = self._schedule_closely(request, step)
            place, budget = step.place, step.budget
            if not has_run:
                break
        step.budget = budget

    def _schedule_closely(self, request: Request, step: Step) -> bool:
        """Give a running request its tokens, if any; False if it had to give way."""
        if (step.defers_prefills and request.is_prefill_chunk) or self._has_its_last_token(request):
            return True
        num_new = self._running_chunk(request, step.budget)
        if num_new <= 0:
            return True
        new_blocks = self._allocate_or_preempt(request, num_new, step)
        if new_blocks is None:
            return False
        if new_blocks is not self.kv_cache_manager.empty_kv_cache_blocks and any(new_blocks):
            step.output.new_block_ids[request.request_id] = new_blocks
        request.num_draft_tokens = 0
        self._record(step, request, request.num_computed_tokens, num_new)
        return True

    def _has_its_last_token(self, request: Request) -> bool:
        """Whether steps in flight are sure to bring the request to max_tokens. Source: 6.3 B1."""
        in_flight = request.num_output_placeholders
        if not self.async_scheduling or not in_flight:
            return False
        last = request.num_prompt_tokens + request.max_tokens
        return request.num_computed_tokens + 2 - in_flight >= last

    def _running_chunk(self, request: Request, budget: int) -> int:
        computed = request.num_computed_tokens
        known = request.num_tokens + request.num_draft_tokens + request.num_output_placeholders
        # One position of the model's length is kept for the token that will be sampled.
        room = self.limits.max_model_len - computed - 1
        num_new = min(self._below_threshold(known - computed), budget, room)
        if self.mamba_align_block_size and num_new > 0:
            num_new = self.mamba_block_aligned_split(request, computed, num_new)
        return num_new

    def _below_threshold(self, num_new: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        return threshold if 0 < threshold < num_new else num_new

    def _allocate_or_preempt(
        self, request: Request, num_new: int, step: Step
    ) -> tuple[list[int], ...] | None:
        """Take blocks, preempting running requests until there are enough.

        Returns None if the request itself had to go.
        """
        lookahead = self.num_lookahead_tokens
        while True:
            new_blocks = self.kv_cache_manager.allocate_slots(
                request, num_new, num_lookahead_tokens=lookahead
            )
            if new_blocks is not None:
                return new_blocks
            victim = self._take_victim(step)
            self._preempt_request(victim)
            step.output.preempted.append(victim)
            if victim is request:
                return None

    def _take_victim(self, step: Step) -> Request:
        """Take a request out of the running ones, and out of the step if it is in it.

        The reference moves the place only for the latter (Q7).
        """
        place = self.policy.victim(self.running)
        victim = self.running.pop(place)
        is_before = place < step.place - 1
        if is_before and (self._undo(victim, step) or "Q7" in self.fixes):
            step.place -= 1
        return victim

    def _undo(self, victim: Request, step: Step) -> bool:
        """Take a request out of the step; False if it was not in it."""
        output = step.output
        entry = output.withdraw(victim)
        if entry is None:
            return False
        _, num_new, num_drafts = entry
        if self.async_scheduling and not victim.is_prefill_chunk:
            victim.num_output_placeholders -= 1 + num_drafts
        victim.is_prefill_chunk |= victim.request_id in step.last_chunk_req_ids
        step.budget += num_new
        return True

    def _preempt_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_draft_tokens = 0
        request.num_preemptions += 1
        self.num_preemptions += 1
        self._preempted_req_ids.append(request.request_id)
        self.waiting.prepend_request(request)

    # -- waiting requests ----------------------------------------------------------------------
    def _schedule_waiting(self, step: Step) -> None:
        """Admit waiting requests until one does not fit: no later one is tried.

        Those that wait for something else are passed over.
        """
        if not self.waiting and not self.skipped_waiting:
            self._is_capacity_bound &= step.defers_prefills
            return
        if self.max_loras:
            running = (request for request, _, _ in step.output.scheduled)
            step.adapters = {r.lora_name for r in running if r.lora_name is not None}
        step.is_decode_only = bool(step.output.scheduled) and not step.has_prefill
        passed_over = self.policy.make_queue()
        while (self.waiting or self.skipped_waiting) and step.budget > 0:
            if len(self.running) >= self.limits.max_num_seqs:
                break
            queue = self.policy.next_queue(self.waiting, self.skipped_waiting)
            request = queue.peek_request()
            if self._must_be_passed_over(request, step):
                passed_over.prepend_request(queue.pop_request())
            elif not self._admit(request, queue, step):
                break
        self.skipped_waiting.prepend_requests(passed_over)
        if not step.defers_prefills:
            self._is_capacity_bound = bool(self.waiting)

    def _must_be_passed_over(self, request: Request, step: Step) -> bool:
        if request.status.is_blocked:
            return True
        if not self.max_loras or request.lora_name is None or request.lora_name in step.adapters:
            return False
        return len(step.adapters) == self.max_loras

    def _admit(self, request: Request, queue: RequestQueue, step: Step) -> bool:
        """Try to start the first waiting request; False if it has to wait."""
        manager = self.kv_cache_manager
        hits, num_hit = manager.get_computed_blocks(request)
        num_new = self._first_chunk(request, num_hit, step)
        if num_new <= 0:
            return False
        new_blocks = manager.allocate_slots(
            request,
            num_new,
            num_hit,
            hits,
            num_lookahead_tokens=self.num_lookahead_tokens,
            num_encoder_tokens=request.num_encoder_tokens,
            full_sequence_must_fit=self.limits.scheduler_reserve_full_isl,
            has_scheduled_reqs=bool(self.running),
        )
        if new_blocks is None:
            return False
        queue.pop_request()
        self._start(request, num_hit, step)
        request.has_placeholder_drafts = step.padding > 0
        self._record(step, request, num_hit, num_new)
        return True

    def _first_chunk(self, request: Request, num_hit: int, step: Step) -> int:
        """Return the tokens that a waiting request may begin with, 0 for none."""
        num_new = request.num_tokens - num_hit
        step.padding = 0
        if step.defers_prefills and num_new > 1:
            return 0
        if num_new == 1 and step.is_decode_only and self.num_spec_tokens:
            # As long as the decodes it joins; the drafts are placeholders.
            step.padding = self.num_spec_tokens
            num_new += self.num_spec_tokens
            if num_new > step.budget or num_hit + num_new > self.limits.max_model_len:
                return 0
        num_new = self._below_threshold(num_new)
        if not self.limits.enable_chunked_prefill and num_new > step.budget:
            return 0
        num_new = min(num_new, step.budget)
        if self.mamba_align_block_size:
            uncached = self.kv_cache_manager.coordinator.num_uncached_common_prefix_tokens
            num_new = self.mamba_block_aligned_split(request, num_hit, num_new, uncached)
        return num_new

    def _start(self, request: Request, num_hit: int, step: Step) -> None:
        if request.status.is_finished:
            raise InvariantError(
                f"request {request.request_id} has ended but waits among those passed over, where "
                "vLLM 0.25.1 leaves it and fails as well"
            )
        self.running.append(request)
        is_resumed = request.status is RequestStatus.PREEMPTED
        (step.output.resumed if is_resumed else step.output.admitted).append(request)
        request.status = RequestStatus.RUNNING
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = num_hit
        if request.num_tokens == request.num_prompt_tokens:
            request.num_prefill_cached_tokens = num_hit
        if self.max_loras and request.lora_name is not None:
            step.adapters.add(request.lora_name)
        request_id = request.request_id
        step.output.new_block_ids[request_id] = self.kv_cache_manager.get_block_ids(request_id)

    def _record(self, step: Step, request: Request, computed: int, num_new: int) -> None:
        """Enter a request into the step and count its tokens as computed. Source: 6.3 B7, F."""
        known = request.num_tokens + request.num_output_placeholders
        end = computed + num_new
        # Placeholder drafts are sent as they are, even where the chunk was cut after them.
        num_drafts = max(end - known, step.padding)
        step.output.record(request, computed, num_new, num_drafts)
        step.budget -= num_new
        request.num_computed_tokens = end
        step.has_prefill |= request.is_prefill_chunk
        if end < known:
            request.is_prefill_chunk = True
            request.quiet_until = 0
            step.output.chunk_req_ids.add(request.request_id)
            return
        if request.is_prefill_chunk:
            request.is_prefill_chunk = False
            step.last_chunk_req_ids.add(request.request_id)
        last = min(request.num_prompt_tokens + request.max_tokens, self.limits.max_model_len)
        request.quiet_until = min(request.quiet_until, last)
        if self.async_scheduling:
            request.num_output_placeholders += 1 + num_drafts
            request.num_draft_tokens = self.num_spec_tokens

    def mamba_block_aligned_split(
        self, request: Request, num_computed: int, num_new: int, num_uncached_common: int = 0
    ) -> int:
        """Shorten a prefill chunk so that it ends where a state is kept. Source: 6.8."""
        size = self.mamba_align_block_size or 1
        return block_aligned_split(
            request, size, num_computed, num_new, num_uncached_common, self.use_eagle
        )

    # -- after the step ------------------------------------------------------------------------
    def update_from_output(self, output: SchedulerOutput) -> list[Request]:
        """Give each request that is computed up to its end its tokens; return the finished.

        A request that was ended since the step was scheduled is passed over; one that was
        preempted since then still gets its tokens. Mutates ``output.first_tokens``.
        Source: spec/manager.md 6.6.
        """
        finished = apply_outputs(self, output)
        # One that was preempted, then passed over, and ends by an output in flight stays there: the
        # reference looks for it among the others only, and fails when its turn comes.
        self.forget(finished, everywhere=False)
        return finished

    def update_draft_token_ids(self, num_drafts: Mapping[str, int]) -> None:
        """Tell how many drafts each request has for the next step, where outputs are in."""
        for request_id, count in num_drafts.items():
            request = self.requests.get(request_id)
            if request is not None:
                request.num_draft_tokens = 0 if request.is_prefill_chunk else count

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Empty the cache index; with the flag, preempt everything that runs first.

        Outputs in flight of what ran are worthless then. Returns whether the index was emptied;
        after a forced preemption a failure is an InvariantError.
        """
        if reset_running_requests:
            while self.running:
                request = self.running.pop()
                self._preempt_request(request)
                request.async_tokens_to_discard = request.num_output_placeholders
                request.num_output_placeholders = 0
        done = self.kv_cache_manager.reset_prefix_cache()
        if reset_running_requests and not done:
            raise InvariantError("blocks are in use although nothing runs")
        return done
