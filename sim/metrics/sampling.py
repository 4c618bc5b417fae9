"""Which steps of a run of unknown length are sampled, without chance and with bounded memory."""

from __future__ import annotations

from typing import Any


class ThinnedSamples:
    """At most ``limit`` rows, one of every ``stride`` steps; stride starts at 1 and doubles.

    When a step is due and the table is full, every other row is dropped and the stride doubles, so
    the rows stay evenly spaced from step 0 on. Which steps remain depends on nothing but the number
    of steps.

    Invariants: rows are those of steps 0, stride, 2 x stride, ...; len(rows) <= limit.

    Example
    -------
    >>> samples = ThinnedSamples(limit=3)
    >>> for step in range(10):
    ...     if samples.is_due(step):
    ...         samples.rows.append(step)
    >>> samples.rows, samples.stride
    ([0, 4, 8], 4)
    """

    def __init__(self, limit: int):
        if limit < 2:
            raise ValueError(f"limit is {limit}, must be at least 2")
        self.limit = limit
        self.stride = 1
        self.rows: list[Any] = []

    @property
    def next_due(self) -> int:
        """The next step that is due; a caller that samples it and no other misses none."""
        step = len(self.rows) * self.stride
        if len(self.rows) == self.limit:
            step += step % (2 * self.stride)
        return step

    def is_due(self, step: int) -> bool:
        """Return whether the caller must append a row for ``step`` now; may drop rows for it."""
        if step % self.stride:
            return False
        if len(self.rows) == self.limit:
            del self.rows[1::2]
            self.stride *= 2
        return step % self.stride == 0

    def passed(self, num_steps: int) -> None:
        """Drop the rows that asking ``is_due`` for each step below ``num_steps`` had dropped."""
        step = len(self.rows) * self.stride
        if len(self.rows) == self.limit and step < num_steps:
            self.is_due(step)
