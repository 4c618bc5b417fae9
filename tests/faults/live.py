"""A scheduler and its manager in the middle of a random run."""

from __future__ import annotations

import random

from sim.core.kv_cache_manager import KVCacheManager
from sim.prefix_ids import PrefixIds
from sim.request import Request, Span
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from tests.helpers import full, make_kv_cache_config, mamba, sliding

SPECS = (full(8), sliding(4, 12), mamba(8))
NUM_BLOCKS = 90
HASH_BLOCK_SIZE, BLOCK_SIZE = 4, 8


class Live:
    """Requests of 1 to 60 prompt tokens, most of which begin like others, in a small pool."""

    def __init__(self, seed: int, specs=SPECS, num_blocks: int = NUM_BLOCKS, observer=None,
        policy: str = "fcfs", **kw,
    ):  # fmt: skip
        self.rng = random.Random(seed)
        config = make_kv_cache_config(specs, num_blocks=num_blocks)
        observed = {} if observer is None else {"observer": observer}
        self.manager = KVCacheManager(
            config, 128, BLOCK_SIZE, HASH_BLOCK_SIZE, max_num_batched_tokens=64, **observed, **kw
        )
        limits = SchedulerLimits(max_num_batched_tokens=64, max_num_seqs=8, max_model_len=128)
        has_states = any(spec.kind == "mamba" for spec in specs)
        self.scheduler = Scheduler(
            self.manager, limits, BLOCK_SIZE if has_states else None, policy=policy
        )
        self.names = PrefixIds(HASH_BLOCK_SIZE)
        self.num_made = 0

    @property
    def pool(self):
        return self.manager.block_pool

    def single(self, group_id: int):
        return self.manager.coordinator.single_type_managers[group_id]

    def spans(self, request_id: str) -> tuple[Span, ...]:
        shared = Span(self.rng.choice("AAB"), 0, 1 + self.rng.randrange(40))
        own = Span(f"own.{request_id}", 0, 1 + self.rng.randrange(20))
        return (shared, own)

    def add(self) -> Request:
        request_id = f"r{self.num_made}"
        self.num_made += 1
        prompt = self.spans(request_id)
        max_tokens = 1 + self.rng.randrange(30)
        output = Span(f"out.{request_id}", 0, max_tokens)
        ids = self.names.of_spans((*prompt, output)).tolist()
        self.note(request_id, (*prompt, output), ids)
        length = sum(span.length for span in prompt)
        request = Request(request_id, length, max_tokens, ids)
        self.scheduler.add_request(request)
        return request

    def note(self, request_id, spans, prefix_ids) -> None:
        """Hook for those who want to know what a request consists of."""

    def step(self):
        while len(self.scheduler.requests) < 10:
            self.add()
        output = self.scheduler.schedule()
        self.scheduler.update_from_output(output)
        return output

    def run(self, num_steps: int) -> Live:
        for _ in range(num_steps):
            self.step()
        return self
