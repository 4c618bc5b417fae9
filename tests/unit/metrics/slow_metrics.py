"""The metrics as their formulas say, with Python's integers and lists: slow, obviously right."""

from itertools import pairwise
from math import fsum

from sim.tables import HELD_PREFIX, OUTCOMES, PARTS

S = 1_000_000_000


def slow_metrics(requests, steps, waste, *, num_blocks, kv_memory_bytes):
    """From rows as dicts, None where a value is missing."""
    values = {f"requests_{name}": count(requests, name) for name in OUTCOMES}
    values |= {"requests_submitted": len(requests), "num_steps": len(steps)}
    span = span_of(requests, steps)
    values |= {"span_s": span, "drain_time_s": drain_of(requests, steps)}
    finished, output = count(requests, "finished"), sum(r["output_tokens"] for r in requests)
    prompt = sum(r["prompt_tokens"] for r in requests if r["first_token_ns"] is not None)
    values |= {"prompt_tokens": prompt, "generation_tokens": output}
    values["request_throughput"] = finished / span if span else None
    values["output_throughput"] = output / span if span else None
    values["total_throughput"] = (prompt + output) / span if span else None
    values |= latencies(requests)
    values |= hits(requests)
    values["vllm:num_preemptions"] = sum(r["preemptions"] for r in requests)
    waits = [
        end - r["arrival_ns"]
        for r in requests
        if (end := r["first_scheduled_ns"] or r["finish_ns"]) is not None
    ]
    values["num_requests_waiting_mean"] = sum(waits) / S / span if span else None
    values |= of_steps(steps, span, num_blocks - 1)
    values |= of_waste(steps, waste, kv_memory_bytes)
    return values


def count(requests, outcome):
    return sum(r["outcome"] == outcome for r in requests)


def span_of(requests, steps):
    if not requests or not steps:
        return None
    arrivals = [r["arrival_ns"] for r in requests]
    return (max(*arrivals, *(s["end_ns"] for s in steps)) - min(arrivals)) / S


def drain_of(requests, steps):
    if not requests or not steps or count(requests, "stuck"):
        return None
    last = max(r["arrival_ns"] for r in requests)
    return max(0, max(s["end_ns"] for s in steps) - last) / S


def latencies(requests):
    done = [r for r in requests if r["outcome"] == "finished"]
    spans = {
        "ttft": between(requests, "arrival_ns", "first_token_ns"),
        "queue_time": between(requests, "arrival_ns", "first_scheduled_ns"),
        "e2e": between(done, "arrival_ns", "finish_ns"),
        "tpot": [
            (r["finish_ns"] - r["first_token_ns"]) / S / (r["output_tokens"] - 1)
            for r in done
            if r["output_tokens"] > 1
        ],
    }
    values = {}
    for name, seconds in spans.items():
        values[f"{name}_mean_s"] = fsum(seconds) / len(seconds) if seconds else None
        for percent in (50, 90, 99):
            rank = max(1, -(-percent * len(seconds) // 100))
            values[f"{name}_p{percent}_s"] = sorted(seconds)[rank - 1] if seconds else None
    return values


def between(requests, begin, end):
    pairs = [(r[begin], r[end]) for r in requests]
    return [(last - first) / S for first, last in pairs if None not in (first, last)]


def hits(requests):
    admitted = [r for r in requests if r["cached_tokens"] is not None]
    cached, asked = (sum(r[name] for r in admitted) for name in ("cached_tokens", "prompt_tokens"))
    return {"cached_prompt_tokens": cached, "prefix_hit_rate": cached / asked if asked else None}


def of_steps(steps, span, usable):
    times = [s["end_ns"] - s["start_ns"] for s in steps]

    def over_time(values):
        total = sum(v * t for v, t in zip(values, times, strict=True))
        return total / S / span if span else None

    def largest(values):
        return max(values) if steps else None

    held = over_time([usable - s["free_blocks"] for s in steps])
    least_free = min((s["free_blocks"] for s in steps), default=None)
    return {
        "step_time_mean_s": sum(times) / S / len(steps) if steps else None,
        "utilisation": sum(times) / S / span if span else None,
        "prefill_tokens_computed": sum(s["prefill_tokens"] for s in steps),
        "decode_tokens_computed": sum(s["decode_tokens"] for s in steps),
        "num_requests_running_mean": over_time([s["num_running"] for s in steps]),
        "num_requests_running_max": largest([s["num_running"] for s in steps]),
        "num_requests_waiting_max": largest([s["num_waiting"] for s in steps]),
        "vllm:kv_cache_usage_perc_mean": held / usable if held is not None else None,
        "vllm:kv_cache_usage_perc_max": 1 - least_free / usable if steps else None,
        "held_blocks_max": largest(
            [sum(n for name, n in s.items() if name.startswith(HELD_PREFIX)) for s in steps]
        ),
        "cached_free_blocks_max": largest([s["cached_free_blocks"] for s in steps]),
    }


def of_waste(steps, waste, memory):
    times = [s["end_ns"] - s["start_ns"] for s in steps]
    bounds = [*(row["step"] for row in waste), len(times)]
    weights = [sum(times[first:last]) for first, last in pairwise(bounds)]
    values = {}
    for part in PARTS:
        sizes = [row[part] for row in waste]
        if not sizes:
            values[f"waste_share_{part}"] = None
        elif not sum(weights):
            values[f"waste_share_{part}"] = fsum(sizes) / len(sizes) / memory
        else:
            total = sum(v * w for v, w in zip(sizes, weights, strict=True))
            values[f"waste_share_{part}"] = total / sum(weights) / memory
    return values
