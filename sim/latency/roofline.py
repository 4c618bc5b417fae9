"""The slower of arithmetic and memory traffic, plus what the host does in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import Field

from sim.config import Strict
from sim.errors import ConfigError
from sim.latency import step_time_state as kinds
from sim.latency.latency_model import LatencyModel
from sim.latency.step_time_state import StepBounds, StepTimeState, step_bounds, step_time_state
from sim.latency.work import StepTime, StepWork
from sim.layout.kv_cache_spec import AttentionSpec, KVCacheSpec, MambaSpec
from sim.units import NS_PER_S

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.layout.plan import Layout
    from sim.models import ModelConfig

_FORMAT_BY_BYTES = {1: "fp8", 2: "bf16", 4: "tf32"}


class RooflineParams(Strict):
    """Choices that neither the model nor the hardware file makes.

    compute_dtype
        number format of the matrix products, a key of the hardware's ``flops_per_s``; None: by the
        model's element size (2 bytes bf16, 1 fp8, 4 tf32)
    weight_bytes_per_parameter : bytes
        stored weight size; None: what the model's family stores, else the model's element size
    step_overhead_us : host time of a step; an assumption of a plausible size, not measured
    kv_group_overhead_us : host time of each KV cache group in a step; the same kind of assumption
    """

    compute_dtype: str | None = None
    weight_bytes_per_parameter: Annotated[float, Field(gt=0, le=16)] | None = None
    step_overhead_us: Annotated[float, Field(ge=0, le=1e9)] = 1000.0
    kv_group_overhead_us: Annotated[float, Field(ge=0, le=1e9)] = 50.0


@dataclass(frozen=True, slots=True)
class AttentionCost:
    """Cost of all attention layers of one window (None: full attention).

    flops_per_pair: for each pair of a query and a key that it sees; bytes_per_key: keys and values
    of one token.
    """

    window: int | None
    flops_per_pair: int
    bytes_per_key: int


def build(
    params: RooflineParams, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTime:
    """Return max(FLOPs / rate, bytes / bandwidth) + host time, in whole nanoseconds.

    FLOPs: 2 x active parameters (embedding and head left out) x tokens, one product with the head
    for each request and each draft to verify, and per attention layer 2 x heads x (key size +
    value size) for each pair of a query and a visible key. Bytes: the weights that are touched (see
    ``touched_share``), keys and values of the visible tokens once per request, those of each new
    token once, and each recurrent state once read and once written per request.

    Left out: activations, the recurrent scan's own arithmetic (under 1 % of the matrix products for
    Jamba), communication. A prompt's chunks count one product with the head each, though only the
    last one samples.

    Source: ours; the roofline of Williams, Waterman, Patterson 2009 (CACM 52(4)).
    """
    costs = _costs(params, model, hardware, layout)
    rate, bandwidth, host_ns = costs.rate, costs.bandwidth, costs.host_ns
    token_flops, head_flops = costs.token_flops, costs.head_flops
    weight_bytes, active_share = costs.weight_bytes, costs.active_share
    token_bytes, state_bytes, attention = costs.token_bytes, costs.state_bytes, costs.attention

    def step_time(work: StepWork) -> int:
        tokens = work.num_prefill_tokens + work.num_decode_tokens
        requests = len(work.prefill) + work.num_decode_requests
        sampled = requests + sum(count - 1 for _, count in work.verify)
        flops = token_flops * tokens + head_flops * sampled
        moved = weight_bytes * touched_share(active_share, tokens)
        moved += token_bytes * tokens + state_bytes * requests
        for cost in attention:
            pairs, keys = visible(work, cost.window)
            flops += cost.flops_per_pair * pairs
            moved += cost.bytes_per_key * keys
        return max(1, round(NS_PER_S * max(flops / rate, moved / bandwidth) + host_ns))

    return step_time


class _Costs(NamedTuple):
    """What a step is priced with; rates per second."""

    rate: float
    bandwidth: float
    token_flops: int
    head_flops: int
    weight_bytes: float
    active_share: float
    token_bytes: int
    state_bytes: int
    host_ns: float
    attention: tuple[AttentionCost, ...]


def _costs(
    params: RooflineParams, model: ModelConfig, hardware: Hardware, layout: Layout
) -> _Costs:
    specs, dims = _layer_counts(layout), model.dims
    attention = attention_costs(model, specs)
    host_us = params.step_overhead_us + params.kv_group_overhead_us * _num_groups(layout)
    states = sum(n * s.real_page_size_bytes for s, n in specs if isinstance(s, MambaSpec))
    return _Costs(
        rate=_flops_rate(params, model, hardware),
        bandwidth=hardware.bytes_per_s * hardware.memory_efficiency,
        token_flops=2 * (dims.num_parameters_active - dims.embedding_parameters),
        head_flops=2 * dims.head_parameters,
        weight_bytes=dims.num_parameters_total * bytes_per_parameter(params, model),
        active_share=min(1.0, dims.num_parameters_active / dims.num_parameters_total),
        token_bytes=sum(cost.bytes_per_key for cost in attention),
        state_bytes=2 * states,
        host_ns=1000 * host_us,
        attention=attention,
    )


def compiled(
    params: RooflineParams, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTimeState | None:
    """Return the costs as a state; None for more than ``MAX_WINDOWS`` windows or too large sums."""
    costs, bounds = _costs(params, model, hardware, layout), step_bounds(layout)
    attention = costs.attention
    if len(attention) > kinds.MAX_WINDOWS or bounds.tokens >= kinds.MAX_TABLE:
        return None
    if not bounds.fit(*_largest(costs, bounds)):
        return None
    windows = {
        "window": [kinds.NO_WINDOW if cost.window is None else cost.window for cost in attention],
        "flops_per_pair": [cost.flops_per_pair for cost in attention],
        "bytes_per_key": [cost.bytes_per_key for cost in attention],
    }
    fields = {name: getattr(costs, name) for name in _Costs._fields if name in kinds.FIELDS}
    touched = _touched_table(costs.active_share, bounds.tokens)
    return step_time_state(kinds.ROOFLINE, fields, windows, touched)


def _largest(costs: _Costs, bounds: StepBounds) -> tuple[float, float, float]:
    """Bounds of a step's FLOPs, of its bytes and of its nanoseconds."""
    per_pair = sum(cost.flops_per_pair for cost in costs.attention)
    flops = (costs.token_flops + costs.head_flops) * bounds.tokens + per_pair * bounds.seen
    moved = (costs.token_bytes + costs.state_bytes) * bounds.tokens
    moved += costs.token_bytes * bounds.seen
    time_s = flops / costs.rate + (costs.weight_bytes + moved) / costs.bandwidth
    return flops, moved, NS_PER_S * time_s + costs.host_ns


def _touched_table(active_share: float, num_tokens: int) -> np.ndarray:
    """Return ``touched_share`` of 0 to ``num_tokens`` tokens; once it is 1 it stays so."""
    table = np.ones(num_tokens + 1)
    for tokens in range(num_tokens + 1):
        table[tokens] = touched_share(active_share, tokens)
        if table[tokens] == 1.0:
            break
    return table


def bytes_per_parameter(params: RooflineParams, model: ModelConfig) -> float:
    """Return the stored size of a weight: as told, as the family stores it, or as it computes."""
    told, stored = params.weight_bytes_per_parameter, model.dims.weight_bytes_per_parameter
    return told or stored or model.dtype_bytes


def touched_share(active_share: float, num_tokens: int) -> float:
    """Return the share of the weights that a step of ``num_tokens`` tokens reads.

    1 for a dense model. For a mixture of experts 1 - (1 - a)^tokens, with a the active share of the
    parameters: what is expected if every parameter belonged to an expert and each token chose its
    experts uniformly and alone. It is exact for one token (a) and for many (1). In between it is a
    little too high, because parameters that all tokens share make a larger than experts per token /
    experts, and too high again if real routers prefer some experts.

    >>> touched_share(0.25, 1), touched_share(0.25, 2), touched_share(1.0, 1)
    (0.25, 0.4375, 1.0)
    """
    return 1.0 - (1.0 - active_share) ** num_tokens


def visible(work: StepWork, window: int | None) -> tuple[int, int]:
    """Return (pairs of query and key, keys to load) of a step for one attention layer.

    A query sees itself and the tokens before it, at most ``window`` in all. A chunk loads each of
    its keys once, so the keys are a lower bound: a kernel may load a key again for later queries.

    Example
    -------
    >>> visible(StepWork(prefill=[(2, 3)], decode=[9]), None)   # 3 + 4 + 5 + 10 pairs
    (22, 15)
    >>> visible(StepWork(prefill=[(2, 3)], decode=[9]), 4)      # 3 + 4 + 4 + 4 pairs
    (15, 9)
    """
    decode = work.decode
    if window is None:
        pairs = keys = sum(decode) + len(decode)
    else:
        reach = window - 1
        # Not sum(map(min, ...)): a call of min costs several comparisons.
        pairs = keys = sum([c if c < reach else reach for c in decode]) + len(decode)
    for first, count in work.chunks:
        end = first + count
        pairs += pairs_before(end, window) - pairs_before(first, window)
        keys += end if window is None else count + min(first, window - 1)
    return pairs, keys


def pairs_before(num_tokens: int, window: int | None) -> int:
    """Return the pairs of query and visible key of the first ``num_tokens`` tokens of a request.

    The sum of min(i, window) for i in 1..num_tokens, in closed form.
    """
    if window is None or num_tokens <= window:
        return num_tokens * (num_tokens + 1) // 2
    return window * (window + 1) // 2 + (num_tokens - window) * window


def attention_costs(
    model: ModelConfig, specs: list[tuple[KVCacheSpec, int]]
) -> tuple[AttentionCost, ...]:
    """Return one cost per window, summed over layers; full attention is the window None."""
    totals: dict[int | None, list[int]] = {}
    for spec, num_layers in specs:
        if not isinstance(spec, AttentionSpec):
            continue
        total = totals.setdefault(getattr(spec, "sliding_window", None), [0, 0])
        value_size = getattr(spec, "head_size_v", None) or spec.head_size
        heads = model.dims.num_attention_heads
        total[0] += num_layers * 2 * heads * (spec.head_size + value_size)
        total[1] += num_layers * spec.real_page_size_bytes // spec.block_size
    return tuple(AttentionCost(window, *total) for window, total in totals.items())


def _layer_counts(layout: Layout) -> list[tuple[KVCacheSpec, int]]:
    groups = layout.kv_cache_config.kv_cache_groups
    for group in groups:
        if not isinstance(group.kv_cache_spec, (AttentionSpec, MambaSpec)):
            kind = type(group.kv_cache_spec).__name__
            raise ConfigError.one("latency.name", "roofline", f"a model without {kind} layers")
    return [(group.kv_cache_spec, len(group.layer_names)) for group in groups]


def _num_groups(layout: Layout) -> int:
    return len(layout.kv_cache_config.kv_cache_groups)


def _flops_rate(params: RooflineParams, model: ModelConfig, hardware: Hardware) -> float:
    name = params.compute_dtype or _FORMAT_BY_BYTES.get(model.dtype_bytes, "bf16")
    if name not in hardware.flops_per_s:
        raise ConfigError.unknown("latency.params.compute_dtype", name, hardware.flops_per_s)
    return hardware.flops_per_s[name] * hardware.compute_efficiency


ROOFLINE = LatencyModel(
    "roofline",
    "the slower of arithmetic and memory traffic, plus host time",
    RooflineParams,
    build,
    compiled,
)
