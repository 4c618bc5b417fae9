"""A scheduler on a manager, as the scheduler tests use it."""

from __future__ import annotations

from tests.helpers import Prefixes, make_manager


class Serving:
    """A scheduler, its manager, and requests whose prompts share nothing unless asked to."""

    def __init__(
        self,
        implementation,
        specs,
        *,
        num_blocks,
        align=None,
        limits=None,
        hash_block_size=None,
        **kw,
    ):
        settings = {"max_num_batched_tokens": 8192, "max_num_seqs": 64, "max_model_len": 8192}
        settings.update(limits or {})
        self.manager = make_manager(
            implementation,
            specs,
            num_blocks=num_blocks,
            hash_block_size=hash_block_size,
            max_model_len=settings["max_model_len"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            **kw,
        )
        self.scheduler = implementation.Scheduler(
            self.manager, implementation.SchedulerLimits(**settings), align
        )
        self.prefixes = Prefixes(hash_block_size or min(spec.block_size for spec in specs))

    def add(self, request_id, num_tokens, *, shared=0, max_tokens=1000):
        prompt = [*range(shared), *((request_id, i) for i in range(num_tokens - shared))]
        request = self.prefixes.request(request_id, prompt, max_tokens=max_tokens)
        self.scheduler.add_request(request)
        return request

    def step(self):
        output = self.scheduler.schedule()
        self.scheduler.update_from_output(output)
        return output

    def steps(self, count):
        return [self.step().num_scheduled_tokens for _ in range(count)]
