"""What every side of the comparison measures and how it says so: one line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONG_S = 60.0


class Clock:
    """Wall and CPU time of what ran under it."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time that the block takes."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        yield
        self.cpu_s += time.process_time() - cpu_s
        self.wall_s += time.perf_counter() - wall_s


def repeated(measure: Callable[[], dict[str, float]], repeats: int) -> dict[str, list[float]]:
    """Return what ``measure`` says, ``repeats`` times; once if that takes more than a minute."""
    rows = []
    while len(rows) < repeats:
        begin = time.perf_counter()
        rows.append(measure())
        if time.perf_counter() - begin > LONG_S:
            break
    return {name: [row[name] for row in rows] for name in rows[0]}


def tell(**values: Any) -> None:
    """Write what was measured, with the most memory that this process had, for the caller."""
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps({**values, "peak_bytes": peak_bytes}) + "\n")
