"""What one engine step computes, as far as a step-time model may look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class StepWork:
    """The composition of one step.

    prefill: (first, count) of each prefill chunk: tokens [first, first + count) of a request.
    decode: for each decode request the number of tokens before the one computed.
    verify: (first, count) of each decode request with drafts: the last known token, at ``first``,
        and count - 1 drafts, which are computed together. Each of them is a query of its own.
    """

    prefill: Sequence[tuple[int, int]]
    decode: Sequence[int]
    verify: Sequence[tuple[int, int]] = ()

    @property
    def chunks(self) -> Sequence[tuple[int, int]]:
        """(first, count) of everything that computes several tokens of a request at once."""
        return (*self.prefill, *self.verify) if self.verify else self.prefill

    @property
    def num_prefill_tokens(self) -> int:
        """Prompt tokens (or recomputed ones) in this step."""
        return sum(count for _, count in self.prefill)

    @property
    def num_decode_tokens(self) -> int:
        """Tokens computed for decode requests: one each, with drafts those as well."""
        if not self.verify:
            return len(self.decode)
        return len(self.decode) + sum(count for _, count in self.verify)

    @property
    def num_decode_requests(self) -> int:
        """Requests that compute tokens to get the next ones."""
        return len(self.decode) + len(self.verify)


StepTime = Callable[[StepWork], int]
"""A step-time model after assembly: work to whole nanoseconds, at least 1, rounded once."""
