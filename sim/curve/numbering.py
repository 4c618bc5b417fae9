"""Dense numbers for ids."""

from __future__ import annotations

import numpy as np


class Numbering:
    """Numbers 64-bit ids 0, 1, 2 ... as they come. Memory: about 100 bytes for each distinct id."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        """Return how many distinct ids came so far."""
        return len(self._numbers)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of each id; int64 (ids,)."""
        numbers, number = self._numbers, self._numbers.setdefault
        return np.fromiter((number(i, len(numbers)) for i in ids.tolist()), np.int64, len(ids))


class DirectNumbering:
    """Numbers ids that are small already, but not all of which come.

    Memory: 8 to 16 bytes for each number up to the largest id.
    """

    def __init__(self) -> None:
        self._numbers = np.zeros(0, np.int64)  # less 1
        self._count = 0

    def __len__(self) -> int:
        """Return how many distinct ids came so far."""
        return self._count

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of each id; int64 (ids,)."""
        missing = int(ids.max(initial=-1)) + 1 - len(self._numbers)
        if missing > 0:
            more = np.zeros(max(missing, len(self._numbers)), np.int64)
            self._numbers = np.concatenate([self._numbers, more])
        new = np.unique(ids[self._numbers[ids] == 0])
        self._numbers[new] = self._count + 1 + np.arange(len(new))
        self._count += len(new)
        return self._numbers[ids] - 1
