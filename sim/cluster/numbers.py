"""Numbers of a whole cluster, from the tables of its replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any

from sim.metrics.metric import Value, mean, nearest_rank
from sim.tables import OUTCOMES
from sim.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sim.results import RunResult

ROW_METRICS = (
    "requests_submitted",
    "requests_finished",
    "prompt_tokens",
    "cached_prompt_tokens",
    "prefix_hit_rate",
    "prefill_tokens_computed",
    "decode_tokens_computed",
    "ttft_mean_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "num_requests_running_mean",
    "num_requests_waiting_mean",
    "utilisation",
    "vllm:kv_cache_usage_perc_mean",
    "vllm:num_preemptions",
)
"""Metrics of each replica that a cluster's result repeats."""

_CHUNK = 1 << 18


def replica_rows(replicas: Sequence[RunResult]) -> list[dict[str, Value]]:
    """Return for each replica its number and the metrics that are worth comparing."""
    return [
        {"replica": number, **{name: result.metrics[name] for name in ROW_METRICS}}
        for number, result in enumerate(replicas)
    ]


def totals(requests: pd.DataFrame, replicas: Sequence[RunResult]) -> dict[str, Value]:
    """Return the numbers of all replicas together; None where there is nothing to count.

    requests : of all replicas, with the columns of ``sim.tables`` and ``replica``
    """
    admitted = requests[requests["cached_tokens"].notna()]
    prompt, cached = int(admitted["prompt_tokens"].sum()), int(admitted["cached_tokens"].sum())
    seconds = span_s(requests, replicas)
    counts = {f"requests_{name}": int((requests["outcome"] == name).sum()) for name in OUTCOMES}
    return {
        "requests_submitted": len(requests),
        **counts,
        "span_s": seconds,
        "request_throughput": _per(counts["requests_finished"], seconds),
        "output_throughput": _per(int(requests["output_tokens"].sum()), seconds),
        "admitted_prompt_tokens": prompt,
        "cached_prompt_tokens": cached,
        "prefix_hit_rate": cached / prompt if prompt else None,
        "prefill_tokens_computed": sum(_prefill_tokens(replicas)),
        "preemptions": int(requests["preemptions"].sum()),
        **_durations("ttft", requests, "first_token_ns"),
        **_durations("e2e", requests[requests["outcome"] == "finished"], "finish_ns"),
        **_durations("queue_time", requests, "first_scheduled_ns"),
    }


def _durations(name: str, requests: pd.DataFrame, until: str) -> dict[str, Value]:
    spans = (requests[until] - requests["arrival_ns"]).dropna()
    seconds = [span / NS_PER_S for span in spans.tolist()]
    ranks = {f"{name}_p{p}_s": nearest_rank(seconds, p) for p in (50, 90, 99)}
    return {f"{name}_mean_s": mean(seconds), **ranks}


def span_s(requests: pd.DataFrame, replicas: Sequence[RunResult]) -> float | None:
    """Return the seconds from the first arrival to the last arrival or step of any replica."""
    begin, end = _span_ns(requests, replicas)
    return (end - begin) / NS_PER_S if end > begin else None


def _span_ns(requests: pd.DataFrame, replicas: Sequence[RunResult]) -> tuple[int, int]:
    if not len(requests):
        return 0, 0
    arrivals = requests["arrival_ns"]
    ends = [int(result.steps["end_ns"].max()) for result in replicas if len(result.steps)]
    return int(arrivals.min()), max([int(arrivals.max()), *ends])


def _per(amount: int, seconds: float | None) -> float | None:
    return amount / seconds if seconds else None


def _prefill_tokens(replicas: Sequence[RunResult]) -> list[int]:
    return [int(result.metrics["prefill_tokens_computed"] or 0) for result in replicas]


# -- how evenly the work is spread -------------------------------------------------------------
def imbalance(requests: pd.DataFrame, replicas: Sequence[RunResult]) -> dict[str, Value]:
    """Return how unevenly replicas work, of prefill tokens computed and of running requests.

    cv : standard deviation over replicas / mean; max_over_mean : the fullest replica / mean. Both
    are 0 and 1 for equal replicas. For running requests, which change with time: the square root of
    the mean variance / the mean, and the mean of the fullest / the mean, over the whole span.
    """
    tokens = _prefill_tokens(replicas)
    average = sum(tokens) / len(tokens)
    spread = sqrt(fsum((n - average) ** 2 for n in tokens) / len(tokens))
    running = _running(requests, len(replicas), _span_ns(requests, replicas))
    return {
        "prefill_tokens_cv": spread / average if average else None,
        "prefill_tokens_max_over_mean": max(tokens) / average if average else None,
        "running_cv": sqrt(running["variance"]) / running["mean"] if running["mean"] else None,
        "running_max_over_mean": running["max"] / running["mean"] if running["mean"] else None,
    }


def _running(
    requests: pd.DataFrame, num_replicas: int, span_ns: tuple[int, int]
) -> dict[str, float]:
    """Return the mean over time of the replicas' mean, largest, and variance of running requests.

    A request runs from its first scheduling to its end, also while it is preempted.
    """
    sums: dict[str, list[float]] = {"mean": [], "max": [], "variance": []}
    seconds = (span_ns[1] - span_ns[0]) / NS_PER_S
    for counts, lasting in _stretches(requests, num_replicas, span_ns[1]):
        average = counts.mean(axis=1)
        sums["mean"] += (average * lasting).tolist()
        sums["max"] += (counts.max(axis=1) * lasting).tolist()
        sums["variance"] += (counts.var(axis=1) * lasting).tolist()
    return {name: fsum(parts) / seconds if seconds else 0.0 for name, parts in sums.items()}


def _stretches(
    requests: pd.DataFrame, num_replicas: int, end_ns: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield stretches of constant counts: running by stretch and replica, and seconds."""
    import numpy as np

    times, replicas, changes = _changes(requests, end_ns)
    running = np.zeros(num_replicas, np.int64)
    until = np.append(times[1:], end_ns)
    for first in range(0, len(times), _CHUNK):
        part = slice(first, first + _CHUNK)
        steps = np.zeros((len(times[part]), num_replicas), np.int64)
        steps[np.arange(len(steps)), replicas[part]] = changes[part]
        counts = running + steps.cumsum(axis=0)
        running = counts[-1]
        yield counts, (until[part] - times[part]) / NS_PER_S


def _changes(requests: pd.DataFrame, end_ns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return when a request began (+1) or ceased (-1) to run, sorted, and on which replica."""
    import numpy as np

    started = requests[requests["first_scheduled_ns"].notna()]
    begins = started["first_scheduled_ns"].to_numpy(np.int64)
    ends = started["finish_ns"].fillna(end_ns).to_numpy(np.int64)
    times = np.concatenate([begins, ends])
    replicas = np.tile(started["replica"].to_numpy(np.int64), 2)
    changes = np.repeat(np.array([1, -1]), len(started))
    order = np.argsort(times, kind="stable")
    return times[order], replicas[order], changes[order]


# -- how right the index was -------------------------------------------------------------------
def promises(requests: pd.DataFrame) -> dict[str, Value]:
    """Return what the router's index promised of the requests that were admitted, and what came.

    Tokens: promised at the choice; found at the first admission; promised and not found; found and
    not promised.
    """
    admitted = requests[requests["cached_tokens"].notna()]
    expected, found = admitted["expected_tokens"], admitted["cached_tokens"]
    surplus: Any = expected - found
    return {
        "expected_tokens": int(expected.sum()),
        "found_tokens": int(found.sum()),
        "broken_promises_tokens": int(surplus.clip(lower=0).sum()),
        "unexpected_tokens": int((-surplus).clip(lower=0).sum()),
    }
