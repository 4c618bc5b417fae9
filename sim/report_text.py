"""The summary of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.metrics.memory import fullest, mean_bytes
from sim.tables import OUTCOMES, PARTS
from sim.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.results import RunResult

_LATENCIES = {
    "time to first token": "ttft",
    "time per output token": "tpot",
    "queue time": "queue_time",
    "end to end": "e2e",
}
_STATISTICS = ("mean", "p50", "p90", "p99")
_NOTHING = "-"


def summary_renderables(result: RunResult) -> list[RenderableType]:
    """Return four tables: what ran, latencies, cache and engine, and where the memory was."""
    return [
        _table(f"Run {result.run_id}", ("", ""), _run_rows(result)),
        _table("Latency", ("", *_STATISTICS), _latency_rows(result), right_from=1),
        _table("Cache and engine", ("", "", "vLLM's name"), _engine_rows(result)),
        _table("KV memory", ("part", "mean", "", "fullest"), _memory_rows(result), right_from=1),
    ]


def duration_text(seconds: float | None) -> str:
    """Return a duration for people: milliseconds below one second, about three digits.

    >>> duration_text(0.0123), duration_text(1.5), duration_text(1234.5), duration_text(None)
    ('12.3 ms', '1.50 s', '1,234 s', '-')
    """
    if seconds is None:
        return _NOTHING
    value, unit = (seconds, "s") if seconds >= 1 else (1000 * seconds, "ms")
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"


def share_text(share: float | None) -> str:
    """Return a share in percent.

    >>> share_text(0.12345), share_text(None)
    ('12.3 %', '-')
    """
    return _NOTHING if share is None else f"{100 * share:.1f} %"


def number_text(value: float | None, unit: str = "") -> str:
    """Return a number with separators; one decimal if it is small and not whole.

    >>> number_text(12031, "requests"), number_text(3.14159), number_text(1234.5), number_text(None)
    ('12,031 requests', '3.1', '1,234', '-')
    """
    if value is None:
        return _NOTHING
    digits = 0 if float(value).is_integer() or value >= 1000 else 1
    return f"{value:,.{digits}f} {unit}".rstrip()


def _table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], right_from: int = 9
) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.show_header = any(headers)
    for i, header in enumerate(headers):
        justify = "right" if i >= right_from else "left"
        table.add_column(header, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _run_rows(result: RunResult) -> list[tuple[str, str]]:
    scenario, metrics = result.scenario, result.metrics
    return [
        ("model", f"{scenario.model} on {scenario.hardware}, step times: {scenario.latency.name}"),
        ("workload", f"{scenario.workload.name}, seed {scenario.seed}"),
        ("layout", _layout_text(result)),
        ("prefix caching", _caching_text(result)),
        ("requests", _requests_text(result)),
        ("simulated time", f"{duration_text(metrics['span_s'])}, {_steps_text(result)}"),
        ("utilisation", _utilisation_text(metrics)),
        ("throughput", _throughput_text(result)),
    ]


def _layout_text(result: RunResult) -> str:
    layout, tables = result.layout, result.tables
    num_groups = len(layout["groups"])
    groups = f"{num_groups} group{'s' if num_groups != 1 else ''}"
    size = format_bytes(layout["bytes_per_block"])
    memory = format_bytes(tables.kv_memory_bytes)
    tokens = f"{layout['capacity']['tokens']:,} tokens"
    return f"{groups}, {tables.num_blocks:,} blocks of {size} in {memory}: {tokens}"


def _caching_text(result: RunResult) -> str:
    if result.layout["settings"]["enable_prefix_caching"]:
        return "on"
    return "off (--enable-prefix-caching turns it on)"


def _requests_text(result: RunResult) -> str:
    counts = {name: result.metrics[f"requests_{name}"] for name in OUTCOMES}
    others = ", ".join(f"{counts[n]:,} {n}" for n in OUTCOMES[1:] if counts[n])
    of_all = f"{counts['finished']:,} of {result.metrics['requests_submitted']:,} finished"
    return f"{of_all}, {others}" if others else of_all


def _utilisation_text(metrics: Mapping[str, Any]) -> str:
    share, drain = share_text(metrics["utilisation"]), duration_text(metrics["drain_time_s"])
    return f"{share} of the time in a step; {drain} from the last arrival to the end"


def _steps_text(result: RunResult) -> str:
    num_steps = number_text(result.metrics["num_steps"])
    return f"{num_steps} steps of {duration_text(result.metrics['step_time_mean_s'])} on average"


def _throughput_text(result: RunResult) -> str:
    requests = number_text(result.metrics["request_throughput"], "requests/s")
    tokens = number_text(result.metrics["output_throughput"], "output tokens/s")
    return f"{requests}, {tokens}"


def _latency_rows(result: RunResult) -> list[tuple[str, ...]]:
    return [
        (label, *(duration_text(result.metrics[f"{name}_{s}_s"]) for s in _STATISTICS))
        for label, name in _LATENCIES.items()
    ]


def _engine_rows(result: RunResult) -> list[tuple[str, str, str]]:
    metrics = result.metrics

    def number(name: str, unit: str) -> str:
        return number_text(metrics[name], unit)

    def range_of(name: str, text: Callable[[float | None], str]) -> str:
        return f"{text(metrics[f'{name}_mean'])}, at most {text(metrics[f'{name}_max'])}"

    usage = "vllm:kv_cache_usage_perc"
    queries, hits = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"
    return [
        ("prefix hit rate", f"{share_text(metrics['prefix_hit_rate'])} of prompt tokens", ""),
        ("cached prompt", number("cached_prompt_tokens", "tokens"), ""),
        ("found in lookups", number(hits, "tokens"), hits),
        ("looked up", number(queries, "tokens"), queries),
        ("prefill computed", number("prefill_tokens_computed", "tokens"), ""),
        ("preemptions", number("vllm:num_preemptions", ""), "vllm:num_preemptions"),
        ("KV cache usage", range_of(usage, share_text), usage),
        ("running", range_of("num_requests_running", number_text), "vllm:num_requests_running"),
        ("waiting", range_of("num_requests_waiting", number_text), "vllm:num_requests_waiting"),
    ]


def _memory_rows(result: RunResult) -> list[tuple[str, str, str, str]]:
    """Parts that held anything: mean over time, its share, and at the fullest sample."""
    at_fullest = fullest(result.tables) or dict.fromkeys(PARTS, 0)
    rows = []
    for part in reversed(PARTS):
        mean = mean_bytes(result.tables, part)
        if mean or at_fullest[part]:
            share = share_text(result.metrics[f"waste_share_{part}"])
            sizes = format_bytes(round(mean or 0)), share, format_bytes(at_fullest[part])
            rows.append((part.replace("_", " "), *sizes))
    return rows
