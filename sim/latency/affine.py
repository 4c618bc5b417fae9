"""A sum of costs per step, token, request, context token and KV cache group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sim.config import Strict
from sim.latency import step_time_state as kinds
from sim.latency.latency_model import LatencyModel
from sim.latency.step_time_state import StepTimeState, step_bounds, step_time_state
from sim.latency.work import StepTime, StepWork

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.layout.plan import Layout
    from sim.models import ModelConfig

Cost = Annotated[float, Field(ge=0, le=1e12)]


class AffineParams(Strict):
    """Costs of one step; the unit stands at the end of each name.

    step_us : cost of a step, whatever it computes
    prefill_token_us : cost of each prefill token
    decode_request_us : cost of each decode request
    context_token_ns : cost of each token that a request has before the step's first token of it
    kv_group_us : the host's work for each KV cache group: attention metadata, a block table

    The defaults are assumptions, not a fit. They are the roofline of an 8-billion-parameter model
    with full attention (16.06 GB of weights, 131,072 bytes of keys and values per token) at 60 % of
    989 TFLOP/s and 80 % of 3.35 TB/s, rounded: 16.06e9 / 2.68e12 = 6.0 ms per step,
    2 x 8.03e9 / 593e12 = 27 us per token, 131072 / 2.68e12 = 49 ns per context token; a decode
    request adds what a token adds.
    """

    step_us: Cost = 6000.0
    prefill_token_us: Cost = 27.0
    decode_request_us: Cost = 27.0
    context_token_ns: Cost = 49.0
    kv_group_us: Cost = 50.0


def build(params: AffineParams, model: ModelConfig, hardware: Hardware, layout: Layout) -> StepTime:
    """Return step + prefill tokens + decode requests + context tokens + groups, each x its cost.

    Context tokens are those that a request of the step has before the step's first token of it. A
    draft to verify costs what a decode request does.
    Source: ours.
    """
    fixed_ns, prefill_ns, decode_ns, context_ns = _costs(params, layout)

    def step_time(work: StepWork) -> int:
        context = sum(work.decode) + sum(first for first, _ in work.chunks)
        tokens_ns = prefill_ns * work.num_prefill_tokens + decode_ns * work.num_decode_tokens
        return max(1, round(fixed_ns + tokens_ns + context_ns * context))

    return step_time


def _costs(params: AffineParams, layout: Layout) -> tuple[float, float, float, float]:
    """Nanoseconds of a step, of a prefill token, of a decode token and of a context token."""
    num_groups = len(layout.kv_cache_config.kv_cache_groups)
    fixed_ns = 1000 * (params.step_us + params.kv_group_us * num_groups)
    prefill_ns, decode_ns = 1000 * params.prefill_token_us, 1000 * params.decode_request_us
    return fixed_ns, prefill_ns, decode_ns, params.context_token_ns


def compiled(
    params: AffineParams, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTimeState | None:
    """Return the costs as a state, None if a step may take 2^62 ns."""
    costs = _costs(params, layout)
    fixed_ns, prefill_ns, decode_ns, context_ns = costs
    bounds = step_bounds(layout)
    longest_ns = fixed_ns + (prefill_ns + decode_ns) * bounds.tokens + context_ns * bounds.seen
    if not bounds.fit(longest_ns):
        return None
    names = ("fixed_ns", "prefill_ns", "decode_ns", "context_ns")
    return step_time_state(kinds.AFFINE, dict(zip(names, costs, strict=True)))


AFFINE = LatencyModel(
    "affine",
    "costs per step, token, request, context token and group",
    AffineParams,
    build,
    compiled,
)
