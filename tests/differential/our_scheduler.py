"""Our scheduler's side of a comparison."""

from __future__ import annotations

from typing import Any

from sim.request import Request, RequestStatus
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from tests.differential.ours import OurManager, plain, stats_of
from tests.differential.scheduler_side import SchedulerSide, Step
from tests.differential.world import Content, World, num_accepted


class OurScheduler(SchedulerSide):
    """sim.scheduler.scheduler.Scheduler."""

    name = "ours"

    def __init__(self, world: World, content: Content, fixes: frozenset[str] = frozenset()):
        self.world = world
        self.ours = OurManager(world, content, fixes)
        self.manager = self.ours.manager
        limits = SchedulerLimits(
            world.max_num_batched_tokens,
            world.max_num_seqs,
            world.max_model_len,
            world.threshold,
            world.chunked,
            world.gate,
        )
        self.scheduler = Scheduler(
            self.manager,
            limits,
            mamba_align_block_size=min(world.block_sizes) if world.has_align else None,
            use_eagle=world.use_eagle,
            policy=world.policy,
            async_scheduling=world.asynchronous,
            num_spec_tokens=world.num_spec_tokens,
            num_lookahead_tokens=world.lookahead,
            max_loras=world.max_loras,
            num_sampled=self._num_sampled,
            fixes=fixes,
        )

    def _num_sampled(self, request: Request, num_drafts: int) -> int:
        number = int(request.request_id[1:])
        return 1 + num_accepted(self.world, number, request.num_output_tokens, num_drafts)

    # -- requests --------------------------------------------------------------------------
    def add(self, number: int) -> None:
        self.scheduler.add_request(self.make_request(number))

    def make_request(self, number: int) -> Request:
        told = self.world.requests[number]
        request = self.ours.request(number)
        request.arrival_ns = told.get("arrival", number)
        request.priority = told.get("priority", 0)
        request.stop_after = told.get("stop_after")
        request.lora_name = told.get("lora")
        if told.get("grammar"):
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        return request

    def grammar_ready(self, request_id: str) -> None:
        self.scheduler.unblock(request_id)

    def requests(self) -> dict[str, Request]:
        return self.scheduler.requests

    def abort(self, request_ids: list[str]) -> list[str]:
        ended = self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)
        return [request.request_id for request in ended]

    def reset(self, running: bool) -> bool:
        return self.scheduler.reset_prefix_cache(reset_running_requests=running)

    # -- steps -----------------------------------------------------------------------------
    def schedule(self, throttle: bool) -> tuple[Any, Step]:
        output = self.scheduler.schedule(throttle_prefills=throttle)
        rows = {i: plain(r) for i, r in output.new_block_ids.items()}
        drafts = dict(output.scheduled_spec_decode_tokens)
        return output, Step(
            scheduled=[(r.request_id, computed, n) for r, computed, n in output.scheduled],
            new_block_ids={i: r for i, r in rows.items() if any(r)},
            admitted=names(output.admitted),
            resumed=names(output.resumed),
            preempted=sorted(output.preempted_req_ids),
            finished=sorted(output.finished_req_ids),
            drafts={i: n for i, n in drafts.items() if n},
            common=list(output.num_common_prefix_blocks),
            to_zero=self.ours.take_new_block_ids() if "mamba" in self.world.kinds else [],
        )

    def update(self, handle: Any) -> Any:
        before = {i: r.num_tokens for i, r in self.scheduler.requests.items()}
        records = dict(self.scheduler.requests)
        finished = {r.request_id for r in self.scheduler.update_from_output(handle)}
        told = []
        for request, _, _ in handle.scheduled:
            name = request.request_id
            count = records[name].num_tokens - before[name] if name in before else 0
            if count or name in finished:
                reason = reason_of(request) if name in finished else None
                told.append((name, count, reason))
        return told, [stats_of(self.manager.make_prefix_cache_stats())]

    def propose(self, drafts: dict[str, int]) -> None:
        self.scheduler.update_draft_token_ids(drafts)

    # -- what can be seen -------------------------------------------------------------------
    def snapshot(self) -> tuple[Any, ...]:
        scheduler = self.scheduler
        return (
            *self.ours.snapshot(),
            names(scheduler.waiting),
            names(scheduler.skipped_waiting),
            names(scheduler.running),
            {i: fields_of(r) for i, r in scheduler.requests.items()},
        )


def names(requests: Any) -> list[str]:
    return [request.request_id for request in requests]


REASONS = {"FINISHED_STOPPED": "stop", "FINISHED_LENGTH_CAPPED": "length"}


def reason_of(request: Request) -> str:
    return REASONS.get(request.status.name, request.status.name)


def fields_of(request: Request) -> tuple[Any, ...]:
    return (
        request.status.name,
        request.num_tokens,
        request.num_computed_tokens,
        request.num_output_placeholders,
        request.num_draft_tokens,
        request.async_tokens_to_discard,
        request.is_prefill_chunk,
        request.num_preemptions,
    )
