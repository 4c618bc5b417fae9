"""A step-time model as numbers: what the compiled engine needs of it, beside the plain function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from sim.layout.plan import Layout

CONSTANT, AFFINE, ROOFLINE = 0, 1, 2
"""Values of ``kind``."""

MAX_WINDOWS = 8
NO_WINDOW = 1 << 62
"""The window of full attention: no context is longer."""

MAX_TABLE = 1 << 22
"""Most tokens of a step for which the touched share of the weights is tabled: 32 MiB."""

_MAX_INT = 1 << 62

STEP_TIME = np.dtype(
    [
        ("kind", np.int8),
        ("num_windows", np.int64),
        # constant
        ("step_ns", np.int64),
        # affine
        ("fixed_ns", np.float64),
        ("prefill_ns", np.float64),
        ("decode_ns", np.float64),
        ("context_ns", np.float64),
        # roofline
        ("token_flops", np.int64),
        ("head_flops", np.int64),
        ("rate", np.float64),
        ("weight_bytes", np.float64),
        ("token_bytes", np.int64),
        ("state_bytes", np.int64),
        ("bandwidth", np.float64),
        ("host_ns", np.float64),
        ("window", np.int64, (MAX_WINDOWS,)),
        ("flops_per_pair", np.int64, (MAX_WINDOWS,)),
        ("bytes_per_key", np.int64, (MAX_WINDOWS,)),
        # of the step that was priced last
        ("num_requests", np.int64),
        ("num_prefill_tokens", np.int64),
        ("num_decode_tokens", np.int64),
        ("context", np.int64),
        ("pairs", np.int64, (MAX_WINDOWS,)),
        ("keys", np.int64, (MAX_WINDOWS,)),
    ],
    align=True,
)
"""Costs of one step-time model; the fields of the other kinds are 0. Units as in the names, the
rate in FLOPs and the bandwidth in bytes per second, windows in tokens.

Then what the last step computed, which is also where a step is added up: tokens, tokens computed
before, and by window the pairs of a query and a key, and the keys. One record, and no array beside
it, because a function that is handed a record counts no references.
"""

FIELDS = frozenset(STEP_TIME.names or ())


class StepTimeState(NamedTuple):
    """One step-time model, assembled.

    costs : record array of dtype ``STEP_TIME``, shape (1,)
    touched : float64, by tokens of a step: the share of the weights that it reads
    """

    costs: np.recarray
    touched: np.ndarray


def step_time_state(
    kind: int,
    costs: Mapping[str, Any],
    windows: Mapping[str, list[int]] | None = None,
    touched: np.ndarray | None = None,
) -> StepTimeState:
    """Return the state with these fields; ``windows`` are its fields with a value per window."""
    record = np.recarray(1, dtype=STEP_TIME)
    record[0] = np.zeros((), STEP_TIME)
    record["kind"] = kind
    for name, value in costs.items():
        record[name] = value
    for name, values in (windows or {}).items():
        record["num_windows"] = len(values)
        record[name][0, : len(values)] = values
    share = np.zeros(1) if touched is None else touched
    return StepTimeState(record, share)


class StepBounds(NamedTuple):
    """The most that one step can be asked to price: tokens in it, tokens of a request."""

    tokens: int
    context: int

    @property
    def seen(self) -> int:
        """Pairs of a query and a key that it sees; there are no more keys than that."""
        return self.tokens * self.context

    def fit(self, *sums: float) -> bool:
        """Return whether these integers, which no step exceeds, and all lengths fit 64 bits.

        Below 2^62 an integer of 64 bits becomes the same float as Python's, correctly rounded, and
        the sum of two of them does not wrap.
        """
        return all(value < _MAX_INT for value in (*sums, self.seen, self.context**2))


def step_bounds(layout: Layout) -> StepBounds:
    """Return the bounds of a layout: a step has at least a token for each of its requests."""
    limits = layout.limits
    return StepBounds(limits.max_num_batched_tokens, limits.max_model_len + 1)
