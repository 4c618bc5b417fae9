"""Whole runs: requests per second of CPU time, and nanoseconds per block operation.

    python -m benchmarks.bench_simulation trace TRACE [--requests 1000]
    python -m benchmarks.bench_simulation growth [--requests 2000 4000 8000]

``trace`` runs the first requests of a Mooncake trace for four models. ``growth`` runs the
stationary multi-turn workload longer and longer: the time per block operation must not grow.
Each row is measured five times after one counting run, which is also the warm-up; all runs of a
row must do the same steps. Time is the CPU time of the one thread that simulates, since wall time
on a shared machine says more about the neighbours; figures hold for one machine: compare within
one run.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import sys
from collections.abc import Iterable
from time import process_time
from typing import Any

from benchmarks.block_operations import BlockOperations, CountingObserver, count_lookups
from sim import simulation
from sim.config import Scenario, validated

MODELS = {
    "meta-llama--Llama-3.1-8B": {},
    "google--gemma-3-27b-it": {},
    "openai--gpt-oss-20b": {},
    "ai21labs--Jamba-v0.1": {"enable_prefix_caching": True, "mamba_cache_mode": "align"},
}
COLUMNS = (
    "benchmark", "model", "requests", "steps", "looked_up", "allocated", "freed",
    "cpu_s_min", "cpu_s_median", "cpu_s_max", "requests_per_s_median",
    "ns_per_block_operation_min", "ns_per_block_operation_median", "ns_per_block_operation_max",
)  # fmt: skip


def counted(scenario: Scenario) -> tuple[BlockOperations, int]:
    """Run once with counting indexes; return the operations and the number of steps."""
    observer = CountingObserver()
    build = simulation.build_manager

    def counting_manager(*args: Any) -> Any:
        manager = build(*args)
        count_lookups(manager, observer.operations)
        return manager

    simulation.build_manager = counting_manager
    try:
        result = simulation.simulate(scenario, observer=observer)
    finally:
        simulation.build_manager = build
    return observer.operations, len(result.steps)


def timed(scenario: Scenario, num_steps: int) -> float:
    """Return the CPU time of one run [s]; a run that did other work is an error."""
    begin = process_time()
    result = simulation.simulate(scenario)
    cpu_s = process_time() - begin
    if len(result.steps) != num_steps or result.metrics["requests_finished"] == 0:
        raise SystemExit(f"expected {num_steps} steps, the run did {len(result.steps)}")
    return cpu_s


def row(name: str, scenario: Scenario, num_requests: int, repeats: int) -> dict[str, Any]:
    """Measure one scenario."""
    operations, num_steps = counted(scenario)
    times = sorted(timed(scenario, num_steps) for _ in range(repeats))
    low, middle, high = times[0], statistics.median(times), times[-1]
    per_operation = [round(t / operations.total * 1e9, 1) for t in (low, middle, high)]
    values = (
        name, scenario.model, num_requests, num_steps,
        operations.looked_up, operations.allocated, operations.freed,
        round(low, 3), round(middle, 3), round(high, 3), round(num_requests / middle, 1),
        *per_operation,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def trace_rows(trace: str, num_requests: int, repeats: int) -> Iterable[dict[str, Any]]:
    """Four models on the head of a trace, at a fifth of its own rate."""
    for model, cache in MODELS.items():
        params = {"path": trace, "max_requests": num_requests, "arrival": {"arrival_scale": 0.2}}
        data = {"model": model, "cache": cache, "workload": {"name": "mooncake", "params": params}}
        yield row("trace", validated(Scenario, data), num_requests, repeats)


def growth_rows(sizes: Iterable[int], repeats: int) -> Iterable[dict[str, Any]]:
    """The stationary multi-turn workload, longer and longer: 32 sessions at a time."""
    arrival = {"kind": "closed", "concurrency": 32}
    for size in sizes:
        data = {
            "model": "openai--gpt-oss-20b",
            "cache": {"kv_cache_memory_bytes": "4GiB"},
            "workload": {
                "name": "multi_turn",
                "params": {"num_requests": size, "arrival": arrival},
            },
        }
        yield row("growth", validated(Scenario, data), size, repeats)


def main() -> None:
    """Print CSV rows; the first line says where they were measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    trace = commands.add_parser("trace")
    trace.add_argument("trace")
    trace.add_argument("--requests", type=int, default=1000)
    growth = commands.add_parser("growth")
    growth.add_argument("--requests", type=int, nargs="+", default=[2000, 4000, 8000])
    for command in (trace, growth):
        command.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.command == "trace":
        rows = trace_rows(options.trace, options.requests, options.repeats)
    else:
        rows = growth_rows(options.requests, options.repeats)
    print(f"# Python {platform.python_version()} on {platform.machine()}", flush=True)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for values in rows:
        writer.writerow(values)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
