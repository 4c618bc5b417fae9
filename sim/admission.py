"""Which requests are refused at the door, because the pool can never hold them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sim.core.attention.chunked_local import ChunkedLocalAttentionManager
from sim.core.attention.full import FullAttentionManager
from sim.core.attention.mamba import MambaManager
from sim.core.attention.rswa import RSWAManager
from sim.core.attention.sink import SinkFullAttentionManager
from sim.core.attention.sliding_window import SlidingWindowManager
from sim.request import Request
from sim.scheduler.limits import SchedulerLimits
from sim.units import cdiv

_TABLE_BOUNDS_NEED = {
    FullAttentionManager,
    SlidingWindowManager,
    ChunkedLocalAttentionManager,
    MambaManager,
    RSWAManager,
    SinkFullAttentionManager,
}
"""Kinds that never hold more of a request than its table has entries."""


class Admission:
    """Decides by a request's lengths alone, as a server in front of the engine would.

    It looks at nothing that changes in a run, so one answer holds for both engines.

    limits : of the scheduler
    manager : the KV cache manager, for what a request needs and for the size of the pool
    reject_unschedulable : refuse what can never fit; otherwise only what the model cannot take

    num_usable_blocks : what requests can hold: not the null block, nor those taken for ever.

    Source: ours; vLLM lets such requests wait for ever (spec/manager.md D.8).
    """

    def __init__(self, limits: SchedulerLimits, manager: Any, reject_unschedulable: bool = True):
        self.limits = limits
        self.manager = manager
        self.reject_unschedulable = reject_unschedulable
        coordinator = manager.coordinator
        groups = coordinator.single_type_managers
        self.num_usable_blocks = manager.block_pool.num_gpu_blocks - 1
        self.num_usable_blocks -= coordinator.num_permanent_blocks
        self._is_bounded = all(type(group) in _TABLE_BOUNDS_NEED for group in groups)
        self._sizes = tuple(Counter(group.block_size for group in groups).items())
        speculative = sum(getattr(group, "num_speculative_blocks", 0) for group in groups)
        self._num_besides = speculative + len(groups)

    def refusal(self, request: Request) -> str | None:
        """Return why a request can never be served, None if it may be."""
        limit = self.limits.max_model_len
        if request.num_prompt_tokens < 1:
            return "the prompt is empty"
        if request.num_prompt_tokens >= limit:
            return f"prompt of {request.num_prompt_tokens:,} tokens, max_model_len {limit:,}"
        if not self.reject_unschedulable:
            return None
        total = request.num_prompt_tokens + request.max_tokens
        if total > limit:
            return f"prompt and output of {total:,} tokens, max_model_len {limit:,}"
        if request.stop_after is not None:
            total = request.num_prompt_tokens + min(request.max_tokens, request.stop_after)
        if self.surely_fits(total):
            return None
        return self._lack_of_blocks(request, total)

    def surely_fits(self, total: int) -> bool:
        """Return whether a request of so many tokens fits although nothing of it is ever freed.

        Its tables cannot be longer; one block per group is to spare. False means nothing. Cost:
        O(block sizes), where the exact answer tries up to a period of every size.
        """
        needed = self._num_besides
        for size, count in self._sizes:
            needed += count * cdiv(total, size)
        return self._is_bounded and needed <= self.num_usable_blocks

    def _lack_of_blocks(self, request: Request, total: int) -> str | None:
        """Compare what the request needs when it is alone with the whole pool."""
        usable = self.num_usable_blocks
        needed = self._decode_need(request, total)
        if self.limits.scheduler_reserve_full_isl:
            needed = max(needed, self.admission_need(request))
        if needed <= usable:
            return None
        return f"{total:,} tokens need {needed:,} blocks, the pool has {usable:,}"

    def admission_need(self, request: Request) -> int:
        """Blocks that the admission gate asks for before anything is computed."""
        num_tokens, empty = request.num_prompt_tokens, self.manager.empty_kv_cache_blocks
        needed: int = self.manager.coordinator.get_num_blocks_to_allocate(
            request.request_id,
            num_tokens,
            empty,
            0,
            num_tokens,
            apply_admission_cap=True,
            num_encoder_tokens=request.num_encoder_tokens,
        )
        return needed

    def _decode_need(self, request: Request, total: int) -> int:
        """Most blocks at once from the last prompt token on; the last token is only sampled."""
        num_prompt = request.num_prompt_tokens
        needed: int = self.manager.coordinator.most_blocks_held(
            num_prompt - 1, total - 1, num_prompt, request.num_encoder_tokens
        )
        return needed
