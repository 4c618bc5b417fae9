"""A cluster's result as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.report_text import duration_text, number_text, share_text

if TYPE_CHECKING:
    from rich.console import RenderableType

Summary = Mapping[str, Any]

_NOTHING = "-"
_ROUTERS = (
    "router",
    "hit rate",
    "TTFT p50",
    "p90",
    "p99",
    "requests/s",
    "prefill max/mean",
    "cv",
    "running max/mean",
    "cv",
)
_REPLICAS = (
    "replica",
    "requests",
    "hit rate",
    "prefill tokens",
    "TTFT p50",
    "p99",
    "running",
    "waiting",
    "busy",
    "KV usage",
    "preemptions",
)


def summary_renderables(summary: Summary) -> list[RenderableType]:
    """Return tables of one run: the whole, and its replicas."""
    title = f"Cluster {summary['run_id']}: {_what(summary)}"
    parts = [_table(title, _ROUTERS, [_router_row(summary)]), _replica_table(summary)]
    return [*parts, *_index_lines([summary])]


def comparison_renderables(summaries: Sequence[Summary]) -> list[RenderableType]:
    """Return the table of several routers, and what their indexes promised."""
    rows = [_router_row(summary) for summary in summaries]
    return [_table(f"Routers: {_what(summaries[0])}", _ROUTERS, rows), *_index_lines(summaries)]


def _what(summary: Summary) -> str:
    scenario = summary["scenario"]
    model, workload = scenario["model"], scenario["workload"]["name"]
    return f"{summary['num_replicas']} replicas of {model}, {workload}"


def _router_row(summary: Summary) -> tuple[str, ...]:
    total, spread = summary["totals"], summary["imbalance"]
    return (
        summary["router"],
        share_text(total["prefix_hit_rate"]),
        *(duration_text(total[f"ttft_p{p}_s"]) for p in (50, 90, 99)),
        _rate(total["request_throughput"]),
        *(
            _ratio(spread[f"{name}_{kind}"])
            for name in ("prefill_tokens", "running")
            for kind in ("max_over_mean", "cv")
        ),
    )


def _ratio(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}"


def _rate(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3g}"


def _replica_table(summary: Summary) -> RenderableType:
    return _table("Replicas", _REPLICAS, [_replica_row(row) for row in summary["replicas"]])


def _replica_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(row["replica"]),
        number_text(row["requests_submitted"]),
        share_text(row["prefix_hit_rate"]),
        number_text(row["prefill_tokens_computed"]),
        duration_text(row["ttft_p50_s"]),
        duration_text(row["ttft_p99_s"]),
        number_text(row["num_requests_running_mean"]),
        number_text(row["num_requests_waiting_mean"]),
        share_text(row["utilisation"]),
        share_text(row["vllm:kv_cache_usage_perc_mean"]),
        number_text(row["vllm:num_preemptions"]),
    )


def _index_lines(summaries: Sequence[Summary]) -> list[RenderableType]:
    """Say for each index how much of what it promised was found."""
    from rich.text import Text

    return [
        Text(
            f"{summary['router']}: the index promised {index['expected_tokens']:,} cached tokens, "
            f"{index['found_tokens']:,} were found; {index['broken_promises_tokens']:,} promised "
            f"ones were not there, {index['unexpected_tokens']:,} came unexpected."
        )
        for summary in summaries
        if (index := summary["index"])
    ]


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for place, header in enumerate(headers):
        table.add_column(header, justify="right" if place else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
