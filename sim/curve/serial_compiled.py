"""The compiled half of ``serial.py``: requests served one at a time, by one record and one row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.core.kv_cache_manager_compiled import (
    allocate_slots,
    free,
    get_computed_blocks,
    new_step_starts,
)
from sim.jit import compiled
from sim.request import RequestStatus
from sim.scheduler.align_compiled import block_aligned_split

NOT_SERVED = -1
RECORD = 0
WAITING, RUNNING = int(RequestStatus.WAITING), int(RequestStatus.RUNNING)


class Chunks(NamedTuple):
    """How a prompt is cut, in tokens; of ``SchedulerLimits``. align_block_size 0: anywhere."""

    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    enable_chunked_prefill: bool
    scheduler_reserve_full_isl: bool
    align_block_size: int


class Lengths(NamedTuple):
    """Requests of a batch, whose identities are in the manager's state.

    starts : int64 (requests + 1,); num_prompt_tokens, num_output_tokens : int64 (requests,)
    is_refused : bool (requests,), those that an engine would not take
    """

    starts: np.ndarray
    num_prompt_tokens: np.ndarray
    num_output_tokens: np.ndarray
    is_refused: np.ndarray


@compiled
def serve_batch(m, chunks, lengths, hits):
    """Serve the requests of a batch; write down the hit tokens of each, or ``NOT_SERVED``."""
    for k in range(hits.shape[0]):
        hits[k] = NOT_SERVED
        if not lengths.is_refused[k]:
            _begin(m, lengths, k)
            hit = _admit(m, chunks)
            if hit >= 0 and _prefill(m, chunks) and _decode(m):
                hits[k] = hit
            free(m, RECORD)


@compiled
def _begin(m, lengths, k):
    request = m.requests[RECORD]
    request.serial += 1
    request.prefix_ids_start = lengths.starts[k]
    request.num_prefix_ids = lengths.starts[k + 1] - lengths.starts[k]
    request.num_prompt_tokens = request.num_tokens = lengths.num_prompt_tokens[k]
    request.max_tokens = lengths.num_output_tokens[k]
    request.num_computed_tokens = request.quiet_until = 0
    request.row = -1
    request.status = WAITING


@compiled
def _admit(m, chunks):
    """Look up and take blocks for the first chunk; return the hit tokens, -1 if in vain."""
    request = m.requests[RECORD]
    new_step_starts(m)
    hit = get_computed_blocks(m, RECORD)
    num_new = _chunk(chunks, request, hit, m.lookup[0].num_uncached_common_prefix_tokens)
    must_fit = chunks.scheduler_reserve_full_isl
    if num_new <= 0 or not allocate_slots(m, RECORD, num_new, hit, True, must_fit, False):
        return NOT_SERVED
    request.status = RUNNING
    request.num_computed_tokens = hit + num_new
    return hit


@compiled
def _chunk(chunks, request, num_computed, num_uncached_common):
    num_new = request.num_tokens - num_computed
    if 0 < chunks.long_prefill_token_threshold < num_new:
        num_new = chunks.long_prefill_token_threshold
    if not chunks.enable_chunked_prefill and num_new > chunks.max_num_batched_tokens:
        return 0
    num_new = min(num_new, chunks.max_num_batched_tokens)
    if chunks.align_block_size:
        num_new = block_aligned_split(
            request, chunks.align_block_size, num_computed, num_new, num_uncached_common
        )
    return num_new


@compiled
def _prefill(m, chunks):
    """Take blocks for the other chunks of the prompt; False if they are not there."""
    request = m.requests[RECORD]
    while request.num_computed_tokens < request.num_prompt_tokens:
        request.quiet_until = 0
        if not _step(m, _chunk(chunks, request, request.num_computed_tokens, 0)):
            return False
    return True


@compiled
def _decode(m):
    """Take blocks for the output, from one step that changes anything to the next."""
    request = m.requests[RECORD]
    last = request.num_prompt_tokens + request.max_tokens - 1
    while request.num_computed_tokens < last:
        total = min(max(request.num_computed_tokens + 1, request.quiet_until), last)
        request.num_tokens = total
        request.num_computed_tokens = total - 1
        if not _step(m, 1):
            return False
    return True


@compiled
def _step(m, num_new):
    new_step_starts(m)
    if num_new <= 0 or not allocate_slots(m, RECORD, num_new, 0, False, False, True):
        return False
    m.requests[RECORD].num_computed_tokens += num_new
    return True
