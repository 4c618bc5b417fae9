"""A scheduler of the simulator on a small manager, steered by hand."""

from __future__ import annotations

from sim.core.integrity import check_integrity
from sim.layout.kv_cache_spec import MambaSpec
from sim.request import Request
from tests.helpers import Prefixes, full
from tests.spec.worlds import SIM, manager_of

LIMITS = {"max_num_batched_tokens": 8192, "max_num_seqs": 64, "max_model_len": 8192}
OF_THE_MANAGER = {
    "num_blocks",
    "watermark",
    "fixes",
    "eagle_groups",
    "retention_interval",
    "observer",
}


class Serving:
    """Settings named like limits go to the limits, the manager's to it, others to the scheduler.

    ``accept`` maps a request id to how many tokens a step with drafts yields; 1 otherwise.
    """

    def __init__(self, *specs, **settings):
        specs = specs or (full(4),)
        names = SIM.SchedulerLimits.__dataclass_fields__
        limits = {**LIMITS, **{k: v for k, v in settings.items() if k in names}}
        mine = {k: v for k, v in settings.items() if k in OF_THE_MANAGER}
        rest = {k: v for k, v in settings.items() if k not in names and k not in OF_THE_MANAGER}
        if "fixes" in settings:
            rest["fixes"] = settings["fixes"]
        mine.update({k: limits[k] for k in ("max_model_len", "max_num_batched_tokens")})
        self.manager = manager_of(*specs, **mine)
        states = [spec for spec in specs if isinstance(spec, MambaSpec)]
        if states and states[0].mamba_cache_mode == "align":
            rest.setdefault("mamba_align_block_size", states[0].block_size)
        self.accept: dict[str, int] = {}
        rest.setdefault("num_sampled", self._num_sampled)
        self.scheduler = SIM.Scheduler(self.manager, SIM.SchedulerLimits(**limits), **rest)
        self.prefixes = Prefixes(min(spec.block_size for spec in specs))

    def _num_sampled(self, request: Request, num_drafts: int) -> int:
        return min(self.accept.get(request.request_id, 1), num_drafts + 1)

    def add(self, request_id, num_tokens, *, shared=0, max_tokens=1000, **fields):
        prompt = [*range(shared), *((request_id, i) for i in range(num_tokens - shared))]
        request = self.prefixes.request(request_id, prompt, max_tokens=max_tokens)
        for name, value in fields.items():
            setattr(request, name, value)
        self.scheduler.add_request(request)
        return request

    def schedule(self, **settings):
        return self.scheduler.schedule(**settings)

    def step(self, **settings):
        output = self.schedule(**settings)
        self.scheduler.update_from_output(output)
        check_integrity(self.manager)
        return output

    def steps(self, count):
        return [self.step().num_scheduled_tokens for _ in range(count)]

    def ids(self, name):
        return [request.request_id for request in getattr(self.scheduler, name)]
