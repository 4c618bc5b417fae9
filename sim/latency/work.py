"""What one engine step computes, as far as a step-time model may look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class StepWork:
    """The composition of one step.

    prefill: (first, count) of each prefill chunk: tokens [first, first + count) of a request.
    decode: for each decode request the number of tokens before the one computed.
    """

    prefill: Sequence[tuple[int, int]]
    decode: Sequence[int]

    @property
    def num_prefill_tokens(self) -> int:
        """Prompt tokens (or recomputed ones) in this step."""
        return sum(count for _, count in self.prefill)

    @property
    def num_decode_tokens(self) -> int:
        """Decode requests in this step, one token each."""
        return len(self.decode)


StepTime = Callable[[StepWork], int]
"""A step-time model after assembly: work to whole nanoseconds, at least 1, rounded once."""
