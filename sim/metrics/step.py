"""Numbers from the step table: how busy the engine was and with what."""

from __future__ import annotations

from collections.abc import Callable

from sim.metrics.metric import Metric, Value, time_weighted_mean
from sim.metrics.request import span_s
from sim.metrics.run_tables import RunTables
from sim.tables import HELD_PREFIX
from sim.units import NS_PER_S


def num_steps(tables: RunTables) -> int:
    """Steps that scheduled something."""
    return len(tables.steps)


def busy_ns(tables: RunTables) -> int:
    """Sum of the step times."""
    return int((tables.steps["end_ns"] - tables.steps["start_ns"]).sum())


def utilisation(tables: RunTables) -> float | None:
    """Share of the span in which a step was running; 1 means that the engine never idled."""
    span = span_s(tables)
    return busy_ns(tables) / NS_PER_S / span if span else None


def step_time_mean_s(tables: RunTables) -> float | None:
    """Mean step time in seconds."""
    return busy_ns(tables) / NS_PER_S / len(tables.steps) if len(tables.steps) else None


def total(column: str) -> Callable[[RunTables], int]:
    """Return the function that sums a column."""
    return lambda tables: int(tables.steps[column].sum())


def over_time(column: str) -> Callable[[RunTables], Value]:
    """Return the function that averages a column over time."""

    def value(tables: RunTables) -> float | None:
        steps = tables.steps
        return time_weighted_mean(steps[column].tolist(), steps["end_ns"].tolist())

    return value


def largest(column: str) -> Callable[[RunTables], Value]:
    """Return the function that finds the largest value of a column."""
    return lambda tables: int(tables.steps[column].max()) if len(tables.steps) else None


def usage(free_blocks: float | None, tables: RunTables) -> float | None:
    """Return the share of usable blocks (all but the null block) that are held."""
    usable = tables.num_blocks - 1
    return 1 - free_blocks / usable if free_blocks is not None and usable > 0 else None


def usage_mean(tables: RunTables) -> float | None:
    """Mean over time of the usage."""
    return usage(over_time("free_blocks")(tables), tables)


def usage_max(tables: RunTables) -> float | None:
    """Largest usage at the end of a step."""
    return usage(int(tables.steps["free_blocks"].min()), tables) if len(tables.steps) else None


def held_blocks_max(tables: RunTables) -> Value:
    """Most blocks with a holder at the end of a step, over all groups."""
    held = [name for name in tables.steps.columns if name.startswith(HELD_PREFIX)]
    return int(tables.steps[held].sum(axis=1).max()) if len(tables.steps) else None


STEP_METRICS = [
    Metric("num_steps", "steps", "size of S", num_steps),
    Metric("step_time_mean_s", "s", "B / size of S", step_time_mean_s),
    Metric("utilisation", "1", "B / T", utilisation),
    Metric("prefill_tokens_computed", "tokens", "sum of x over S", total("prefill_tokens")),
    Metric("decode_tokens_computed", "tokens", "sum of y over S", total("decode_tokens")),
    Metric(
        "vllm:num_preemptions",
        "preemptions",
        "sum of z over S",
        total("preemptions"),
        "vllm:num_preemptions",
    ),
    Metric(
        "num_requests_running_mean",
        "requests",
        "M of running",
        over_time("num_running"),
        "vllm:num_requests_running",
    ),
    Metric(
        "num_requests_running_max",
        "requests",
        "largest running",
        largest("num_running"),
        "vllm:num_requests_running",
    ),
    Metric(
        "num_requests_waiting_mean",
        "requests",
        "M of waiting",
        over_time("num_waiting"),
        "vllm:num_requests_waiting",
    ),
    Metric(
        "num_requests_waiting_max",
        "requests",
        "largest waiting",
        largest("num_waiting"),
        "vllm:num_requests_waiting",
    ),
    Metric(
        "vllm:kv_cache_usage_perc_mean",
        "1",
        "M of 1 - free / (N - 1)",
        usage_mean,
        "vllm:kv_cache_usage_perc",
    ),
    Metric(
        "vllm:kv_cache_usage_perc_max",
        "1",
        "largest 1 - free / (N - 1)",
        usage_max,
        "vllm:kv_cache_usage_perc",
    ),
    Metric("held_blocks_max", "blocks", "largest sum of held over groups", held_blocks_max),
    Metric(
        "cached_free_blocks_max", "blocks", "largest cached free", largest("cached_free_blocks")
    ),
]
