"""Our manager and our scheduler under the benchmark's loops."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from time import process_time
from typing import Any

from benchmarks.layouts import Pool
from benchmarks.loops import Record
from sim.core.kv_cache_manager import KVCacheManager
from sim.observer import NULL_OBSERVER, Observer
from sim.prefix_ids import PrefixIds
from sim.request import Request, RequestSpec, RequestStatus
from sim.scheduler.limits import SchedulerLimits
from sim.scheduler.scheduler import Scheduler


class NativeSide:
    """Requests made beforehand; ``hashing_s`` is the CPU time that naming their prefixes took."""

    name = "kvsim"
    preempted, running = RequestStatus.PREEMPTED, RequestStatus.RUNNING

    def __init__(
        self,
        pool: Pool,
        specs: Sequence[RequestSpec],
        observer: Observer = NULL_OBSERVER,
    ):
        self.manager = KVCacheManager(
            pool.kv_cache_config,
            pool.max_model_len,
            pool.block_size,
            pool.hash_block_size,
            pool.budget,
            observer=observer,
        )
        self.scheduler = Scheduler(
            self.manager,
            SchedulerLimits(pool.budget, pool.max_num_seqs, pool.max_model_len),
            mamba_align_block_size=pool.align,
        )
        self.hashing_s = 0.0
        self.schedule_s = self.update_s = 0.0
        self._identities = PrefixIds(pool.hash_block_size)
        self._requests = {spec.request_id: self._made(spec) for spec in specs}

    def _made(self, spec: RequestSpec) -> Request:
        begin = process_time()
        prefix_ids = array("q", self._identities.of(spec).tobytes())
        self.hashing_s += process_time() - begin
        return Request(
            spec.request_id, spec.num_prompt_tokens, spec.num_output_tokens, prefix_ids=prefix_ids
        )

    def request(self, request_id: str) -> Request:
        return self._requests[request_id]

    def append(self, request: Request) -> None:
        request.num_tokens += 1

    def hint(self) -> int:
        return self.manager.coordinator.num_uncached_common_prefix_tokens

    def block_ids(self, blocks: Any) -> list[list[int]]:
        return [list(row) for row in blocks]

    def free_queue(self) -> list[int]:
        return self.manager.block_pool.free_block_queue.get_all_free_blocks()

    def step(self, record: Record | None) -> list[str]:
        begin = process_time()
        output = self.scheduler.schedule()
        self.schedule_s += process_time() - begin
        if record:
            tables = [
                self.block_ids(self.manager.get_block_ids(r)) for r in output.num_scheduled_tokens
            ]
            record((list(output.num_scheduled_tokens.items()), tables))
        begin = process_time()
        finished = self.scheduler.update_from_output(output)
        self.update_s += process_time() - begin
        return [request.request_id for request in finished]
