"""Which capacities a curve is asked at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.errors import ConfigError
from sim.units import parse_bytes

KEY = "--capacities"
POINTS = 15
"""Capacities where none are given."""
_BLOCKS = re.compile(r"[0-9]{1,18}", re.ASCII)


class Capacity(NamedTuple):
    """A capacity as it was asked for: in bytes, or in blocks; one of them is None."""

    num_bytes: int | None
    num_blocks: int | None


def read_capacities(text: str) -> list[Capacity]:
    """Return the capacities of a list such as ``1GiB,20GiB`` or ``100,1000``.

    A number without a unit counts blocks. Raises ConfigError for anything else, and for 0.
    """
    return [_read(part.strip()) for part in text.split(",")]


def _read(text: str) -> Capacity:
    allowed = "blocks, or bytes with a unit, separated by commas: 1000,20000 or 1GiB,20GiB"
    if _BLOCKS.fullmatch(text) and int(text):
        return Capacity(None, int(text))
    try:
        num_bytes = parse_bytes(text)
    except ConfigError:
        num_bytes = 0
    if not num_bytes:
        raise ConfigError.one(KEY, text, allowed)
    return Capacity(num_bytes, None)


def log_spaced(first: int, last: int, points: int) -> list[int]:
    """Return whole numbers from ``first`` to ``last``, equal factors apart, without repetition.

    >>> log_spaced(10, 1000, 3), log_spaced(5, 5, 3)
    ([10, 100, 1000], [5])
    """
    first = max(1, min(first, last))
    steps: Sequence[float] = np.geomspace(first, max(first, last), points).tolist()
    return sorted({round(step) for step in steps})
