"""vLLM's own Scheduler over a hand-made minimal configuration, with faked model output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.differential.ours import stats_of
from tests.differential.scheduler_side import (
    NEGATIVE_TOKENS,
    TOO_MANY_ADAPTERS,
    Nonsense,
    SchedulerSide,
    Step,
)
from tests.differential.theirs import RequestMaker, kv_cache_config, load, looked_at, set_retention
from tests.differential.world import EAGLE_METHODS, Content, World, num_accepted


class Settings(SimpleNamespace):
    """A configuration object: what is not set is None, as if it were off."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def speculative(world: World) -> Settings | None:
    if world.spec_method is None:
        return None
    method = world.spec_method
    return Settings(
        method=method,
        num_speculative_tokens=world.num_spec_tokens,
        use_eagle=lambda: method in EAGLE_METHODS,
        uses_draft_model=lambda: method == "draft_model",
        use_ngram_gpu=lambda: False,
        use_dflash=lambda: method == "dflash",
        use_dspark=lambda: method == "dspark",
        num_speculative_tokens_per_batch_size=None,
    )


def vllm_config(world: World) -> Settings:
    """Return what the scheduler reads of a VllmConfig; found by calling it."""
    spec = speculative(world)
    scheduler = Settings(
        max_num_batched_tokens=world.max_num_batched_tokens,
        max_num_seqs=world.max_num_seqs,
        max_model_len=world.max_model_len,
        long_prefill_token_threshold=world.threshold,
        enable_chunked_prefill=world.chunked,
        policy=world.policy,
        disable_chunked_mm_input=False,
        scheduler_reserve_full_isl=world.gate,
        watermark=world.watermark,
        prefill_schedule_interval=1,
        async_scheduling=world.asynchronous,
        stream_interval=1,
        max_num_encoder_input_tokens=world.max_num_batched_tokens,
        encoder_cache_size=world.max_num_batched_tokens,
    )
    modes = {g["mode"] for g in world.groups if "mode" in g}
    cache = Settings(
        block_size=min(world.block_sizes),
        enable_prefix_caching=world.enable_caching,
        num_gpu_blocks=world.num_blocks,
        mamba_cache_mode=modes.pop() if modes else "none",
    )
    parallel = Settings(
        pipeline_parallel_size=1,
        decode_context_parallel_size=world.dcp,
        prefill_context_parallel_size=world.pcp,
        data_parallel_rank=0,
        data_parallel_index=0,
        cp_kv_cache_interleave_size=1,
    )
    return Settings(
        scheduler_config=scheduler,
        model_config=Settings(
            max_model_len=world.max_model_len,
            is_encoder_decoder=False,
            is_multimodal_model=False,
            is_diffusion=False,
        ),
        cache_config=cache,
        parallel_config=parallel,
        lora_config=Settings(max_loras=world.max_loras) if world.max_loras else None,
        speculative_config=spec,
        num_speculative_tokens=world.num_spec_tokens if spec else 0,
        observability_config=Settings(),
        structured_outputs_config=Settings(),
        use_v2_model_runner=False,
    )


class Grammar:
    """Stands for a grammar that accepts everything."""

    def accept_tokens(self, *_: Any) -> bool:
        return True

    def is_terminated(self) -> bool:
        return False

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens


class Grammars:
    """A structured output manager that only says no more than it must."""

    def should_advance(self, request: Any) -> bool:
        return False

    def grammar_init(self, request: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: False


class TheirScheduler(SchedulerSide):
    """vllm.v1.core.sched.scheduler.Scheduler, or AsyncScheduler."""

    name = "theirs"

    def __init__(self, world: World, content: Content):
        self.api = api = load()
        self.world = world
        self.maker = RequestMaker(api, world, content)
        set_retention(world)
        kind = api.AsyncScheduler if world.asynchronous else api.Scheduler
        self.scheduler = kind(
            vllm_config=vllm_config(world),
            kv_cache_config=kv_cache_config(world),
            structured_output_manager=Grammars(),
            block_size=world.scheduler_block_size,
            hash_block_size=world.hash_size,
            log_stats=True,
        )
        self.manager = self.scheduler.kv_cache_manager
        self.manager.block_pool.enable_kv_cache_events = world.events and world.enable_caching
        self.scheduler.kv_event_publisher = self
        self.published: list[Any] = []

    def publish(self, batch: Any) -> None:
        """Take the events of a step, as a publisher does."""
        self.published += batch.events

    # -- requests --------------------------------------------------------------------------
    def add(self, number: int) -> None:
        request = self.maker.make(number)
        request.arrival_time = float(self.world.requests[number].get("arrival", number))
        if self.world.requests[number].get("grammar"):
            request.status = self.api.RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
            request.structured_output_request = Settings(grammar=None)
        self.scheduler.add_request(request)

    def grammar_ready(self, request_id: str) -> None:
        request = self.scheduler.requests[request_id]
        request.structured_output_request = Settings(grammar=Grammar())

    def requests(self) -> dict[str, Any]:
        return self.scheduler.requests

    def abort(self, request_ids: list[str]) -> list[str]:
        status = self.api.RequestStatus.FINISHED_ABORTED
        return [i for i, _ in self.scheduler.finish_requests(request_ids, status)]

    def reset(self, running: bool) -> bool:
        return self.scheduler.reset_prefix_cache(reset_running_requests=running)

    # -- steps -----------------------------------------------------------------------------
    def schedule(self, throttle: bool) -> tuple[Any, Step]:
        output = self._schedule(throttle)
        cached = output.scheduled_cached_reqs
        computed = {r.req_id: r.num_computed_tokens for r in output.scheduled_new_reqs}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        blocks = {r.req_id: r.block_ids for r in output.scheduled_new_reqs}
        blocks.update(zip(cached.req_ids, cached.new_block_ids, strict=True))
        numbers = output.num_scheduled_tokens
        step = Step(
            scheduled=[(i, computed[i], n) for i, n in numbers.items()],
            new_block_ids={
                i: tuple(list(row) for row in rows)
                for i, rows in blocks.items()
                if rows is not None and any(rows)
            },
            admitted=[r.req_id for r in output.scheduled_new_reqs],
            resumed=[i for i in cached.req_ids if i in cached.resumed_req_ids],
            preempted=sorted(output.preempted_req_ids or ()),
            finished=sorted(output.finished_req_ids),
            drafts={i: len(d) for i, d in output.scheduled_spec_decode_tokens.items()},
            common=list(output.num_common_prefix_blocks),
            to_zero=list(output.new_block_ids_to_zero or ()),
        )
        requests = self.scheduler.requests
        final = {i: not requests[i].is_prefill_chunk for i in numbers}
        return (output, final), step

    def _schedule(self, throttle: bool) -> Any:
        try:
            output = self.scheduler.schedule(throttle_prefills=throttle)
        except AssertionError:
            adapters = {r.lora_request.lora_name for r in self.scheduler.running if r.lora_request}
            if len(adapters) > self.world.max_loras > 0:
                raise Nonsense(TOO_MANY_ADAPTERS) from None
            raise
        if any(n < 0 for n in output.num_scheduled_tokens.values()):
            raise Nonsense(NEGATIVE_TOKENS)
        return output

    def update(self, handle: Any) -> Any:
        output, final = handle
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sampled(i, output) if final[i] else [] for i in ids]
        model_output = self.api.ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={r: i for i, r in enumerate(ids)},
            sampled_token_ids=sampled,
        )
        known = [self.scheduler.requests[i] for i in ids if i in self.scheduler.requests]
        told = self.scheduler.update_from_output(output, model_output)
        for request in known:
            self.maker.names.learn(int(request.request_id[1:]), request)
        outputs = [o for of_client in told.values() for o in of_client.outputs]
        stats = [o.scheduler_stats for o in told.values() if o.scheduler_stats is not None]
        return (
            [(o.request_id, len(o.new_token_ids), _reason(o.finish_reason)) for o in outputs],
            [stats_of(s.prefix_cache_stats) for s in stats],
        )

    def _sampled(self, request_id: str, output: Any) -> list[int]:
        """Return the tokens that the model makes: what was accepted, and one more."""
        request = self.scheduler.requests.get(request_id)
        if request is None:
            return [0]
        number = int(request_id[1:])
        drafts = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
        count = 1 + num_accepted(self.world, number, request.num_output_tokens, drafts)
        first = request.num_tokens
        tokens = self.maker.tokens[number][first : first + count]
        return tokens + [0] * (count - len(tokens))

    def propose(self, drafts: dict[str, int]) -> None:
        self.scheduler.update_draft_token_ids(
            self.api.DraftTokenIds(list(drafts), [[7] * n for n in drafts.values()])
        )

    # -- what can be seen -------------------------------------------------------------------
    def snapshot(self) -> tuple[Any, ...]:
        scheduler = self.scheduler
        earlier, self.published = self.published, []
        return (
            *looked_at(self.manager, self.maker.names, earlier),
            [],
            [r.request_id for r in scheduler.waiting],
            [r.request_id for r in scheduler.skipped_waiting],
            [r.request_id for r in scheduler.running],
            {i: _fields(r) for i, r in scheduler.requests.items()},
        )


def _reason(reason: Any) -> str | None:
    return None if reason is None else str(reason)


def _fields(request: Any) -> tuple[Any, ...]:
    told = request.structured_output_request
    # Ours is told at once that the grammar is ready; theirs looks when its turn comes.
    is_ready = request.status.name.startswith("WAITING_FOR") and told is not None and told.grammar
    return (
        "WAITING" if is_ready else request.status.name,
        request.num_tokens,
        request.num_computed_tokens,
        request.num_output_placeholders,
        len(request.spec_token_ids),
        request.async_tokens_to_discard,
        bool(request.is_prefill_chunk),
        request.num_preemptions,
    )
