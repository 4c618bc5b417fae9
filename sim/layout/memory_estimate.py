"""How much memory a device leaves to the KV cache: an estimate, with its parts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from sim.errors import ConfigError
from sim.units import GIB, MIB, cdiv, format_bytes

# Bytes per parameter, scales included: a byte per 16 (nvfp4) or 32 (mxfp4) values, fp16 per 128
# (int4).
WEIGHT_BYTES: dict[str, Fraction] = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "nvfp4": Fraction(9, 16),
    "mxfp4": Fraction(17, 32),
    "int4": Fraction(33, 64),
}
DEFAULT_UTILIZATION = 0.92
OTHER_BYTES = 640 * MIB  # device context, libraries and communication buffers, not torch's
GRAPH_BYTES = 512 * MIB  # captured graphs of the usual batch sizes
ACTIVATION_WIDTHS = 16  # vectors of hidden size alive per token at the peak of a step
_ACTIVATION_BYTES = 2  # of one element


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What becomes of one device's memory, in bytes.

    ``total`` and ``requested`` are exact; weights follow from the number of parameters; the rest
    is a stated allowance.
    """

    total: int
    requested: int
    weights: int
    activations: int
    graphs: int = GRAPH_BYTES
    other: int = OTHER_BYTES

    @property
    def kv(self) -> int:
        """What is left for the KV cache; not positive where nothing is."""
        return self.requested - self.weights - self.activations - self.graphs - self.other


def estimate_kv_memory(
    *,
    total_bytes: int,
    utilization: float = DEFAULT_UTILIZATION,
    num_parameters: int,
    weight_dtype: str = "bf16",
    hidden_size: int,
    max_num_batched_tokens: int = 8192,
    num_ranks: int = 1,
) -> MemoryEstimate:
    """Return an estimate of what one rank's memory goes to.

    The engine measures weights, activations and graphs; here the weights are parameters times
    bytes, divided evenly among all ranks (which they never quite are), and 16 vectors of hidden
    size in 16 bits stand for each batched token's activations, divided alike.

    Parameters
    ----------
    total_bytes : memory of one device
    weight_dtype : a name of WEIGHT_BYTES, taken for all weights alike

    Raises
    ------
    ConfigError
        An unknown dtype, a share outside of (0, 1], or nothing left for the cache.

    Source: spec/layout.md 12. Deviation: the allowances are this project's own.
    """
    if weight_dtype not in WEIGHT_BYTES:
        raise ConfigError.unknown("memory.weight_dtype", str(weight_dtype), WEIGHT_BYTES)
    if not 0 < utilization <= 1:
        key = "memory.gpu_memory_utilization"
        raise ConfigError.one(key, utilization, "above 0, at most 1")
    width = ACTIVATION_WIDTHS * hidden_size * _ACTIVATION_BYTES
    estimate = MemoryEstimate(
        total=total_bytes,
        requested=ceil(total_bytes * utilization),
        weights=ceil(num_parameters * WEIGHT_BYTES[weight_dtype] / num_ranks),
        activations=max_num_batched_tokens * cdiv(width, num_ranks),
    )
    if estimate.kv <= 0:
        raise _nothing_left(estimate, utilization)
    return estimate


def _nothing_left(estimate: MemoryEstimate, utilization: float) -> ConfigError:
    allowances = estimate.activations + estimate.graphs + estimate.other
    text = (
        f"more memory or more ranks: {estimate.requested / GIB:.2f} GiB requested per rank, "
        f"{estimate.weights / GIB:.2f} GiB of weights and {allowances / GIB:.2f} GiB of allowances"
    )
    return ConfigError.one("memory.gpu_memory_utilization", utilization, text)


def estimate_rows(estimate: MemoryEstimate) -> list[tuple[str, str]]:
    """Return the parts for people: what, and how much."""
    rows = (
        ("memory of the device", estimate.total),
        ("requested of it", estimate.requested),
        ("weights", estimate.weights),
        (f"activations: {ACTIVATION_WIDTHS} vectors per batched token", estimate.activations),
        ("captured graphs", estimate.graphs),
        ("outside of torch", estimate.other),
        ("left for the KV cache", estimate.kv),
    )
    return [(name, format_bytes(value)) for name, value in rows]
