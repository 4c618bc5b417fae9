"""Numbers from the step table: how busy the engine was and with what."""

from __future__ import annotations

from collections.abc import Callable

from sim.metrics.metric import Metric, Value
from sim.metrics.request import num_preemptions, num_waiting_mean, span_s
from sim.metrics.run_tables import RunTables
from sim.metrics.totals import StepTotals
from sim.units import NS_PER_S


def num_steps(tables: RunTables) -> int:
    """Steps that scheduled something."""
    return tables.step_table.num_rows


def busy_ns(tables: RunTables) -> int:
    """Sum of the step times."""
    return tables.once(StepTotals.of).busy_ns


def utilisation(tables: RunTables) -> float | None:
    """Share of the span in which a step was running; 1 means that the engine never idled."""
    span = span_s(tables)
    return busy_ns(tables) / NS_PER_S / span if span else None


def step_time_mean_s(tables: RunTables) -> float | None:
    """Mean step time in seconds."""
    num = num_steps(tables)
    return busy_ns(tables) / NS_PER_S / num if num else None


def total(column: str) -> Callable[[RunTables], int]:
    """Return the function that sums a column."""
    return lambda tables: tables.once(StepTotals.of).sums[column]


def over_time(amount_ns: int, tables: RunTables) -> float | None:
    """Return the mean over the span of what holds while each step runs and is 0 in between.

    amount_ns : sum over the steps of value times step time
    """
    span = span_s(tables)
    return amount_ns / NS_PER_S / span if span else None


def running_mean(tables: RunTables) -> float | None:
    """Mean over time of the requests that are running."""
    return over_time(tables.once(StepTotals.of).over_time["num_running"], tables)


def largest(column: str) -> Callable[[RunTables], Value]:
    """Return the function that finds the largest value of a column."""
    return lambda tables: tables.once(StepTotals.of).largest.get(column)


def usage_mean(tables: RunTables) -> float | None:
    """Mean over time of the usage; between steps nothing is held."""
    steps, usable = tables.once(StepTotals.of), _num_usable(tables)
    held = over_time(usable * steps.busy_ns - steps.over_time["free_blocks"], tables)
    return held / usable if held is not None and usable > 0 else None


def usage_max(tables: RunTables) -> float | None:
    """Largest share of usable blocks that are held while a step runs."""
    least_free, usable = tables.once(StepTotals.of).least_free_blocks, _num_usable(tables)
    return 1 - least_free / usable if least_free is not None and usable > 0 else None


def _num_usable(tables: RunTables) -> int:
    """All blocks but the null block."""
    return tables.num_blocks - 1


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
    Metric("held_blocks_max", "blocks", "largest sum of held over groups", largest("held_blocks")),
    Metric(
        "cached_free_blocks_max", "blocks", "largest cached free", largest("cached_free_blocks")
    ),
]
