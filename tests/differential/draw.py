"""Where the numbers of a random world come from: a seed, or Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


class Draw:
    """Small numbers; 0 and the first option are the simplest."""

    def below(self, bound: int) -> int:
        raise NotImplementedError

    def between(self, first: int, last: int) -> int:
        """Return a number in [first, last]."""
        return first + self.below(last - first + 1)

    def of(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases; False is the simpler answer."""
        return self.below(100) >= 100 - percent


class SeedDraw(Draw):
    """From a seed: the same seed gives the same world."""

    def __init__(self, seed: int):
        self._random = random.Random(seed).random

    def below(self, bound: int) -> int:
        return int(self._random() * bound)


class HypothesisDraw(Draw):
    """From the ``draw`` of a Hypothesis strategy, which shrinks what it gave."""

    def __init__(self, draw: Any):
        from hypothesis import strategies

        self._draw, self._integers = draw, strategies.integers

    def below(self, bound: int) -> int:
        return self._draw(self._integers(0, bound - 1))
