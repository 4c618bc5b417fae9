"""The step-time models in plain loops: the same nanoseconds as the functions of the models' files.

Every product and sum is made in the order of the plain models, sums of integers as integers, and a
time is rounded once, half to even. So the answers are equal, not close; a model whose integers
might leave 64 bits has no state (``StepBounds.fit``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.jit import compiled
from sim.latency.step_time_state import (
    AFFINE,
    CONSTANT,
    STEP_TIME,
    StepTimeState,
    step_time_state,
)
from sim.units import NS_PER_S

__all__ = [
    "STEP_TIME",
    "StepTimeState",
    "step_time",
    "step_time_state",
]


@compiled
def step_time(
    state: StepTimeState,
    computed: np.ndarray,
    num_new: np.ndarray,
    is_decode: np.ndarray,
    n: int,
) -> int:
    """Return what a step costs in nanoseconds, at least 1.

    Row i < n computes ``num_new[i]`` tokens after ``computed[i]``; it is a decode row if
    ``is_decode[i]``, with one new token then. Notes the step in the state. Cost: O(n x windows).
    """
    costs = state.costs[0]
    if costs.kind == CONSTANT:
        return int(costs.step_ns)
    _add_up(costs, computed, num_new, is_decode, n)
    for w in range(costs.num_windows):
        _see_queries(costs, w, computed, n)
    if costs.num_prefill_tokens > 0:
        for w in range(costs.num_windows):
            _see_chunks(costs, w, computed, num_new, n)
    return _priced(costs, state.touched)


@compiled
def _add_up(
    costs: Any,
    computed: np.ndarray,
    num_new: np.ndarray,
    is_decode: np.ndarray,
    n: int,
) -> None:
    """Count requests, tokens and context."""
    tokens = decode = context = 0
    for i in range(n):
        context += computed[i]
        tokens += num_new[i]
        decode += is_decode[i] != 0
    costs.num_requests = n
    costs.num_prefill_tokens = tokens - decode
    costs.num_decode_tokens = decode
    costs.context = context


@compiled
def _see_queries(costs: Any, w: int, computed: np.ndarray, n: int) -> None:
    """Count pairs and keys of one window as if each row had one query; see ``roofline.visible``."""
    reach = costs.window[w] - 1
    seen = 0
    for i in range(n):
        seen += min(computed[i], reach)
    costs.pairs[w] = seen + n
    costs.keys[w] = seen + n


@compiled
def _see_chunks(costs: Any, w: int, computed: np.ndarray, num_new: np.ndarray, n: int) -> None:
    """Add what the other queries of the rows with several see."""
    window = costs.window[w]
    for i in range(n):
        count = num_new[i]
        if count != 1:
            first = computed[i] + 1
            end = computed[i] + count
            costs.pairs[w] += _pairs_before(end, window) - _pairs_before(first, window)
            costs.keys[w] += count - 1


@compiled
def _pairs_before(num_tokens: int, window: int) -> int:
    """Pairs of query and visible key of a request's first tokens; see ``roofline``."""
    if num_tokens <= window:
        return num_tokens * (num_tokens + 1) // 2
    return window * (window + 1) // 2 + (num_tokens - window) * window


@compiled
def _priced(costs: Any, touched: np.ndarray) -> int:
    """Return the time of the step that has been added up."""
    if costs.kind == AFFINE:
        return _affine(costs)
    return _roofline(costs, touched[costs.num_prefill_tokens + costs.num_decode_tokens])


@compiled
def _affine(costs: Any) -> int:
    tokens_ns = costs.prefill_ns * costs.num_prefill_tokens
    tokens_ns += costs.decode_ns * costs.num_decode_tokens
    return _rounded(costs.fixed_ns + tokens_ns + costs.context_ns * costs.context)


@compiled
def _roofline(costs: Any, touched_share: float) -> int:
    tokens = costs.num_prefill_tokens + costs.num_decode_tokens
    flops = costs.token_flops * tokens + costs.head_flops * costs.num_requests
    moved = costs.weight_bytes * touched_share
    moved += costs.token_bytes * tokens + costs.state_bytes * costs.num_requests
    for w in range(costs.num_windows):
        flops += costs.flops_per_pair[w] * costs.pairs[w]
        moved += costs.bytes_per_key[w] * costs.keys[w]
    slower_s = max(flops / costs.rate, moved / costs.bandwidth)
    return _rounded(NS_PER_S * slower_s + costs.host_ns)


@compiled
def _rounded(time_ns: float) -> int:
    return max(1, int(np.rint(time_ns)))
