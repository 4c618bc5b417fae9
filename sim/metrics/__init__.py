"""Tables of a run -> numbers. Each has a name, a unit and a formula; see ``docs/metrics.md``."""

from __future__ import annotations

from sim.metrics.memory import MEMORY_METRICS
from sim.metrics.metric import Metric, Value
from sim.metrics.request import REQUEST_METRICS
from sim.metrics.run_tables import RunTables
from sim.metrics.step import STEP_METRICS
from sim.registry import Registry

METRICS: Registry[Metric] = Registry(
    "metric",
    {metric.name: metric for metric in (*REQUEST_METRICS, *STEP_METRICS, *MEMORY_METRICS)},
)


def compute_metrics(tables: RunTables) -> dict[str, Value]:
    """Return every registered metric by name; None where there is nothing to compute it from."""
    return {name: metric.value(tables) for name, metric in METRICS.items()}
