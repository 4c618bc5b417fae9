"""The summary of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sim.metrics.memory import fullest, mean_bytes
from sim.reasons.summary import cause_rows, veto_sentences
from sim.tables import OUTCOMES, PARTS
from sim.units import GIB, KIB, MIB, format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.config import Scenario
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
    """Return tables: what ran, latencies, cache and engine, where the memory was.

    A run that recorded reasons has one more: where the prompt tokens went.
    """
    return [
        _table(f"Run {result.run_id}", ("", ""), _run_rows(result)),
        _table("Latency", ("", *_STATISTICS), _latency_rows(result), right_from=1),
        _table("Cache and engine", ("", "", "vLLM's name"), _engine_rows(result)),
        _table("KV memory", _memory_headers(result), _memory_rows(result), right_from=1),
        *reason_renderables(result),
    ]


def reason_renderables(result: RunResult) -> list[RenderableType]:
    """Return where the prompt tokens went, as a table and in sentences; nothing if unknown."""
    from rich.text import Text

    summary, groups = result.reasons, result.layout["groups"]
    if summary is None:
        return []
    headers = ("found, or why not", "because of", "tokens", "share")
    table = _table("Prompt tokens", headers, cause_rows(summary, groups), right_from=2)
    return [table, *map(Text, veto_sentences(summary, groups))]


def profile_renderables(profile: Mapping[str, Any]) -> list[RenderableType]:
    """Return where the time of a run went (``Profile.as_json``), and what measuring it cost."""
    from rich.text import Text

    total_s = profile["total_s"]
    rows = [
        (name, f"{part['seconds']:.3f}", f"{part['seconds'] / total_s:.1%}", _calls(part["calls"]))
        for name, part in profile["parts"].items()
    ]
    rows.append(("together", f"{total_s:.3f}", "100.0%", ""))
    table = _table("Where the time went", ("", "s", "share", "calls"), rows, right_from=1)
    cost = f"measuring took some {profile['overhead_s']:.3f} s of it"
    return [table, Text(cost)]


def _calls(count: int) -> str:
    return f"{count:,}" if count else ""


def lost_renderables(worst: Sequence[tuple[str, int, int, str]]) -> list[RenderableType]:
    """Return the requests that lost most of what had been cached (``Story.worst``)."""
    rows = [(name, why, f"{lost:,}", f"{tokens:,}") for name, lost, tokens, why in worst]
    headers = ("request", "mostly", "lost tokens", "of tokens")
    return [_table("Requests that lost most", headers, rows, right_from=2)]


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
        ("workload", ", ".join((*_workload_parts(scenario), f"seed {scenario.seed}"))),
        ("layout", _layout_text(result)),
        ("prefix caching", _caching_text(result)),
        ("requests", _requests_text(result)),
        ("simulated time", f"{duration_text(metrics['span_s'])}, {_steps_text(result)}"),
        ("utilisation", _utilisation_text(metrics)),
        ("throughput", _throughput_text(result)),
    ]


def _workload_parts(scenario: Scenario) -> Iterable[str]:
    """Name, trace file and arrivals: what tells two runs of one workload apart."""
    params = scenario.workload.params
    yield scenario.workload.name
    if isinstance(params.get("path"), str):
        yield PurePath(params["path"]).name
    if isinstance(params.get("arrival"), Mapping):
        yield arrival_text(params["arrival"])


def arrival_text(arrival: Mapping[str, Any]) -> str:
    """Return how requests or sessions arrive, the rate as it is after ``arrival_scale``.

    >>> arrival_text({"kind": "poisson", "rate_per_s": 0.8, "arrival_scale": 0.5})
    'poisson arrivals at 0.4/s'
    >>> arrival_text({"kind": "closed", "concurrency": 16})
    'closed loop of 16'
    """
    kind, scale = arrival.get("kind"), arrival.get("arrival_scale") or 1
    if kind == "closed":
        return f"closed loop of {arrival.get('concurrency')}"
    if arrival.get("rate_per_s"):
        text = f"{kind} arrivals at {arrival['rate_per_s'] * scale:g}/s"
        burstiness = arrival.get("burstiness")
        return f"{text}, burstiness {burstiness:g}" if burstiness is not None else text
    return f"arrivals: {kind}" if scale == 1 else f"arrivals: {kind}, {scale:g} times as fast"


def _layout_text(result: RunResult) -> str:
    layout, tables = result.layout, result.tables
    num_groups = len(layout["groups"])
    groups = f"{num_groups} group{'s' if num_groups != 1 else ''}"
    size = format_bytes(layout["bytes_per_block"])
    memory = format_bytes(tables.kv_memory_bytes)
    tokens = f"{layout['capacity']['tokens']:,} tokens"
    return f"{groups}, {tables.num_blocks:,} blocks of {size} in {memory}: {tokens}"


def _caching_text(result: RunResult) -> str:
    settings = result.layout["settings"]
    if settings["enable_prefix_caching"]:
        mode = settings.get("mamba_cache_mode") or "none"
        return "on" if mode == "none" else f"on, Mamba cache mode {mode}"
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


_UNITS = ((GIB, "GiB", 3), (MIB, "MiB", 2), (KIB, "KiB", 1), (1, "B", 0))


def _memory_unit(result: RunResult) -> tuple[int, str, int]:
    """Bytes, name and decimals of the largest unit that the whole KV memory fills."""
    memory = result.tables.kv_memory_bytes
    return next((unit for unit in _UNITS if memory >= unit[0]), _UNITS[-1])


def _memory_headers(result: RunResult) -> tuple[str, ...]:
    unit = _memory_unit(result)[1]
    return "part", f"mean [{unit}]", "share", f"fullest sample [{unit}]"


def _memory_rows(result: RunResult) -> list[tuple[str, str, str, str]]:
    """Parts that held anything: mean while steps run, its share, and at the fullest sample."""
    at_fullest = fullest(result.tables) or dict.fromkeys(PARTS, 0)
    size, _, digits = _memory_unit(result)
    rows = []
    for part in reversed(PARTS):
        mean = mean_bytes(result.tables, part)
        if mean or at_fullest[part]:
            share = share_text(result.metrics[f"waste_share_{part}"])
            sizes = [_decimal(n / size, digits) for n in (mean or 0, at_fullest[part])]
            rows.append((part.replace("_", " "), sizes[0], share, sizes[1]))
    return rows


def _decimal(value: float, digits: int) -> str:
    """What is there but too little to show is not 0."""
    least = 10**-digits
    return f"< {least:.{digits}f}" if 0 < value < least / 2 else f"{value:,.{digits}f}"
