"""Requests served one at a time by a KV cache manager: what each finds of those before it.

A request is looked up, gets blocks for its prompt chunk by chunk and for its output token by
token, as the scheduler of an idle engine would ask for them, and gives everything back before the
next one comes. Chunks matter: between two of them a sliding window gives blocks back.

Where nothing else is running, an engine with one request at a time does the same; so hit tokens
are those of ``kvsim run`` with a closed loop of concurrency 1 (tests/curve/test_serial.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from sim.admission import Admission
from sim.curve.blocks import Requests
from sim.request import Request, RequestStatus
from sim.scheduler.align import block_aligned_split
from sim.scheduler.limits import SchedulerLimits

NOT_SERVED = -1
"""In the place of hit tokens: the request does not fit the pool, or the model."""


class SerialServer(Protocol):
    """Serves requests one at a time, and keeps what they leave in the cache."""

    def serve(self, requests: Requests) -> np.ndarray:
        """Return the hit tokens of each request, or ``NOT_SERVED``; int64 (requests,)."""


def serve(server: SerialServer, batches: Iterable[Requests]) -> np.ndarray:
    """Return the hit tokens of all requests of some batches, or ``NOT_SERVED``; int64."""
    return np.concatenate([np.empty(0, np.int64), *map(server.serve, batches)])


class ManagerServer:
    """Serves with any KV cache manager that the scheduler could use.

    Parameters
    ----------
    make_manager : builds an empty manager
    limits : of the scheduler: tokens of a chunk, longest request, and the admission gate
    align_block_size : block size that chunks must end on (Mamba mode ``align``), or None
    """

    def __init__(
        self,
        make_manager: Callable[[], Any],
        limits: SchedulerLimits,
        align_block_size: int | None = None,
    ):
        self.manager = make_manager()
        self._limits = limits
        self._align_block_size = align_block_size
        self._admission = Admission(limits, self.manager)
        self._num_requests = 0

    def serve(self, requests: Requests) -> np.ndarray:
        """Return the hit tokens of each request, or ``NOT_SERVED``; int64 (requests,)."""
        prefix_ids, starts = requests.prefix_ids.tolist(), requests.starts.tolist()
        lengths = zip(requests.num_prompt_tokens, requests.num_output_tokens, strict=True)
        hits = []
        for place, (num_prompt, num_output) in enumerate(lengths):
            self._num_requests += 1
            own = prefix_ids[starts[place] : starts[place + 1]]
            name = f"r{self._num_requests}"
            hits.append(self._serve(Request(name, int(num_prompt), int(num_output), own)))
        return np.array(hits, np.int64)

    def _serve(self, request: Request) -> int:
        if self._admission.refusal(request) is not None:
            return NOT_SERVED
        hit = self._admit(request)
        has_run = hit is not None and self._prefill(request) and self._decode(request)
        self.manager.free(request)
        return hit if has_run and hit is not None else NOT_SERVED

    def _admit(self, request: Request) -> int | None:
        """Look up and take blocks for the first chunk; return the hit tokens, None if in vain."""
        manager = self.manager
        manager.new_step_starts()
        rows, hit = manager.get_computed_blocks(request)
        uncached = manager.coordinator.num_uncached_common_prefix_tokens
        num_new = self._chunk(request, hit, uncached)
        if num_new <= 0:
            return None
        new_blocks = manager.allocate_slots(
            request,
            num_new,
            hit,
            rows,
            full_sequence_must_fit=self._limits.scheduler_reserve_full_isl,
            has_scheduled_reqs=False,
        )
        if new_blocks is None:
            return None
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit + num_new
        return int(hit)

    def _chunk(self, request: Request, num_computed: int, num_uncached_common: int = 0) -> int:
        limits, num_new = self._limits, request.num_tokens - num_computed
        if 0 < limits.long_prefill_token_threshold < num_new:
            num_new = limits.long_prefill_token_threshold
        if not limits.enable_chunked_prefill and num_new > limits.max_num_batched_tokens:
            return 0
        num_new = min(num_new, limits.max_num_batched_tokens)
        if self._align_block_size is None:
            return num_new
        return block_aligned_split(
            request, self._align_block_size, num_computed, num_new, num_uncached_common
        )

    def _prefill(self, request: Request) -> bool:
        """Take blocks for the other chunks of the prompt; False if they are not there."""
        while request.num_computed_tokens < request.num_prompt_tokens:
            request.quiet_until = 0
            if not self._step(request, self._chunk(request, request.num_computed_tokens)):
                return False
        return True

    def _decode(self, request: Request) -> bool:
        """Take blocks for the output; False if they are not there.

        The last token is sampled, never computed. Steps that take, register and free nothing are
        passed over: those of less than ``quiet_until`` tokens in all.
        """
        last = request.num_prompt_tokens + request.max_tokens - 1
        while request.num_computed_tokens < last:
            total = min(max(request.num_computed_tokens + 1, request.quiet_until), last)
            request.num_tokens, request.num_computed_tokens = total, total - 1
            if not self._step(request, 1):
                return False
        return True

    def _step(self, request: Request, num_new: int) -> bool:
        self.manager.new_step_starts()
        if num_new <= 0 or self.manager.allocate_slots(request, num_new) is None:
            return False
        request.num_computed_tokens += num_new
        return True
