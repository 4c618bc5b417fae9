"""vLLM's own manager and scheduler under the benchmark's loops, called as they are."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from typing import Any

from benchmarks.layouts import Pool
from benchmarks.loops import Record
from sim.request import Request, RequestSpec
from sim.token_ids import token_ids
from sim.vllm import (
    SchedulerSettings,
    block_hasher,
    build_manager,
    build_scheduler,
    to_vllm_request,
)
from sim.vllm.names import scheduler_names


class VllmSide:
    """Requests made beforehand; ``hashing_s`` is the CPU time of hashing their prompts' blocks.

    The blocks of outputs are hashed as tokens are appended: that is part of the loop. Statistics
    and events are off.
    """

    name = "vllm"

    def __init__(
        self,
        pool: Pool,
        specs: Sequence[RequestSpec],
        async_scheduling: bool = False,
    ):
        names, config = scheduler_names(), pool.kv_cache_config
        self.preempted, self.running = names.RequestStatus.PREEMPTED, names.RequestStatus.RUNNING
        self.scheduler = build_scheduler(
            config,
            SchedulerSettings(
                max_num_batched_tokens=pool.budget,
                max_num_seqs=pool.max_num_seqs,
                max_model_len=pool.max_model_len,
                block_size=pool.block_size,
                hash_block_size=pool.hash_block_size,
                cache_block_size=pool.cache_block_size,
                mamba_cache_mode=pool.mamba_cache_mode,
                async_scheduling=async_scheduling,
                enable_kv_cache_events=False,
                log_stats=False,
            ),
        )
        sizes = (pool.max_model_len, pool.block_size, pool.hash_block_size)
        self.manager = build_manager(config, *sizes, pool.budget, log_stats=False)
        self.hashing_s = self.schedule_s = self.update_s = 0.0
        self._hash = block_hasher(pool.hash_block_size)
        self._outputs: dict[str, list[int]] = {}
        self._requests = {spec.request_id: self._made(spec) for spec in specs}
        self._model_output = names.ModelRunnerOutput

    def _made(self, spec: RequestSpec) -> Any:
        request = Request(spec.request_id, spec.num_prompt_tokens, spec.num_output_tokens)
        self._outputs[spec.request_id] = token_ids([spec.output])
        return to_vllm_request(request, token_ids(spec.prompt), self._timed_hash)

    def _timed_hash(self, request: Any) -> list[bytes]:
        """Measure the first call, which hashes the prompt, and step aside."""
        begin = process_time()
        hashes = self._hash(request)
        self.hashing_s += process_time() - begin
        request.block_hasher = self._hash
        return hashes

    def request(self, request_id: str) -> Any:
        return self._requests[request_id]

    def _next_token(self, request: Any) -> int:
        return self._outputs[request.request_id][request.num_output_tokens]

    def append(self, request: Any) -> None:
        request.append_output_token_ids(self._next_token(request))

    def hint(self) -> int:
        return getattr(self.manager.coordinator, "num_uncached_common_prefix_tokens", 0)

    def block_ids(self, blocks: Any) -> list[list[int]]:
        return [list(row) for row in blocks.get_block_ids()]

    def free_queue(self) -> list[int]:
        pool = self.manager.block_pool
        return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]

    def step(self, record: Record | None) -> list[str]:
        scheduler = self.scheduler
        begin = process_time()
        output = scheduler.schedule()
        self.schedule_s += process_time() - begin
        ids = list(output.num_scheduled_tokens)
        if record:
            tables = [list(scheduler.kv_cache_manager.get_block_ids(r)) for r in ids]
            record((list(output.num_scheduled_tokens.items()), tables))
        answer = self._model_output(
            req_ids=ids,
            req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
            sampled_token_ids=[self._sampled(scheduler.requests[request_id]) for request_id in ids],
        )
        begin = process_time()
        outputs = scheduler.update_from_output(output, answer)
        self.update_s += process_time() - begin
        return [
            ended.request_id
            for ended in (outputs[0].outputs if 0 in outputs else ())
            if ended.finish_reason is not None
        ]

    def _sampled(self, request: Any) -> list[int]:
        if request.num_computed_tokens < request.num_tokens:
            return []
        return [self._next_token(request)]
