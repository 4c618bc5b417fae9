"""Numbers from the waste table: the mean share of each part of the KV memory."""

from __future__ import annotations

from itertools import pairwise

from sim.metrics.metric import Metric, weighted_mean
from sim.metrics.run_tables import RunTables
from sim.tables import PARTS


def mean_bytes(tables: RunTables, part: str) -> float | None:
    """Return the mean of the bytes of a part while steps run; a sample stands for its steps."""
    return weighted_mean(tables.waste[part].tolist(), _busy_ns_by_sample(tables))


def _busy_ns_by_sample(tables: RunTables) -> list[int]:
    """Sum the step times from each sampled step up to the next sampled one."""
    times = (tables.steps["end_ns"] - tables.steps["start_ns"]).tolist()
    bounds = [*tables.waste["step"].tolist(), len(times)]
    return [sum(times[first:last]) for first, last in pairwise(bounds)]


def fullest(tables: RunTables) -> dict[str, int] | None:
    """Return the bytes of each part at the sample with the fewest free bytes, the first of them."""
    if not len(tables.waste):
        return None
    row = tables.waste.iloc[int(tables.waste["free"].argmin())]
    return {part: int(row[part]) for part in PARTS}


def _share(part: str) -> Metric:
    def value(tables: RunTables) -> float | None:
        size = mean_bytes(tables, part)
        return None if size is None else size / tables.kv_memory_bytes

    return Metric(f"waste_share_{part}", "1", f"W of bytes in part {part} / K", value)


MEMORY_METRICS = [_share(part) for part in PARTS]
