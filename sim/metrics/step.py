"""Numbers from the step table: how busy the engine was and with what."""

from __future__ import annotations

from collections.abc import Callable

from sim.metrics.metric import Metric, Value
from sim.metrics.request import num_preemptions, num_waiting_mean, span_s
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


def over_time(tables: RunTables, values: list[int]) -> float | None:
    """Return the mean over the span of what holds while each step runs and is 0 in between."""
    steps, span = tables.steps, span_s(tables)
    if not span:
        return None
    times = (steps["end_ns"] - steps["start_ns"]).tolist()
    return sum(v * t for v, t in zip(values, times, strict=True)) / NS_PER_S / span


def running_mean(tables: RunTables) -> float | None:
    """Mean over time of the requests that are running."""
    return over_time(tables, tables.steps["num_running"].tolist())


def largest(column: str) -> Callable[[RunTables], Value]:
    """Return the function that finds the largest value of a column."""
    return lambda tables: int(tables.steps[column].max()) if len(tables.steps) else None


def usage(free_blocks: float | None, tables: RunTables) -> float | None:
    """Return the share of usable blocks (all but the null block) that are held."""
    usable = tables.num_blocks - 1
    return 1 - free_blocks / usable if free_blocks is not None and usable > 0 else None


def usage_mean(tables: RunTables) -> float | None:
    """Mean over time of the usage; between steps nothing is held."""
    usable = tables.num_blocks - 1
    held = over_time(tables, (usable - tables.steps["free_blocks"]).tolist())
    return held / usable if held is not None and usable > 0 else None


def usage_max(tables: RunTables) -> float | None:
    """Largest usage while a step runs."""
    return usage(int(tables.steps["free_blocks"].min()), tables) if len(tables.steps) else None


def held_blocks_max(tables: RunTables) -> Value:
    """Most blocks with a holder while a step runs, over all groups."""
    held = [name for name in tables.steps.columns if name.startswith(HELD_PREFIX)]
    return int(tables.steps[held].sum(axis=1).max()) if len(tables.steps) else None


def acceptance_length_mean(tables: RunTables) -> float | None:
    """Mean tokens that a verified request got: the accepted drafts, and one more."""
    verified = tables.spec_decode_num_drafts
    return 1 + tables.spec_decode_num_accepted_tokens / verified if verified else None


STEP_METRICS = [
    Metric("num_steps", "steps", "size of S", num_steps),
    Metric("step_time_mean_s", "s", "B / size of S", step_time_mean_s),
    Metric("utilisation", "1", "B / T", utilisation),
    Metric("prefill_tokens_computed", "tokens", "sum of x over S", total("prefill_tokens")),
    Metric("decode_tokens_computed", "tokens", "sum of y over S", total("decode_tokens")),
    Metric(
        "vllm:num_preemptions",
        "preemptions",
        "sum of preemptions over R",
        num_preemptions,
        "vllm:num_preemptions",
    ),
    Metric(
        "num_requests_running_mean",
        "requests",
        "M of running",
        running_mean,
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
        "sum of s - a over R, e - a without s, / T",
        num_waiting_mean,
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
    Metric(
        "vllm:spec_decode_num_draft_tokens",
        "tokens",
        "D",
        lambda tables: tables.spec_decode_num_draft_tokens,
        "vllm:spec_decode_num_draft_tokens",
    ),
    Metric(
        "vllm:spec_decode_num_accepted_tokens",
        "tokens",
        "G",
        lambda tables: tables.spec_decode_num_accepted_tokens,
        "vllm:spec_decode_num_accepted_tokens",
    ),
    Metric("acceptance_length_mean", "tokens", "1 + G / V", acceptance_length_mean),
    Metric("held_blocks_max", "blocks", "largest sum of held over groups", held_blocks_max),
    Metric(
        "cached_free_blocks_max", "blocks", "largest cached free", largest("cached_free_blocks")
    ),
]
