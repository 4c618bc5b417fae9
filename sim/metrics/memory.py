"""Numbers from the waste table: the mean share of each part of the KV memory."""

from __future__ import annotations

from sim.metrics.metric import Metric, weighted_mean
from sim.metrics.run_tables import RunTables
from sim.metrics.totals import StepTotals
from sim.tables import PARTS


def mean_bytes(tables: RunTables, part: str) -> float | None:
    """Return the mean of the bytes of a part while steps run; a sample stands for its steps."""
    weights = tables.once(StepTotals.of).busy_ns_by_sample
    return weighted_mean(tables.waste[part].tolist(), weights)


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
