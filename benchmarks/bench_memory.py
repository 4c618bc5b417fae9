"""Long runs: wall time and peak memory against the number of requests.

    python -m benchmarks.bench_memory [--requests 10000 100000 1000000] [--engines compiled python]
                                      [--model NAME] [--concurrency 32] [--scenario FILE]
                                      [--at-most-s 1200]

Runs the multi-turn workload for Gemma-3-27b (20 GiB of KV memory, an H100's step times), 32
sessions at a time: sessions that arrive faster than they end would make a queue that grows with
the run. ``--concurrency 0`` leaves arrivals as the scenario has them. Each number of requests
has a process of its own and runs through the library, the saving of the result included. Memory
is the peak of resident memory (VmHWM, Linux), beside what is resident when everything is
imported and planned. A run that would take longer than ``--at-most-s``, by the time per request
of the one before it, is left out and said so. What each run did is checked: every request must
have ended.

stdout is CSV, its first line says where it was measured; stderr shows the rows as they come.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

COLUMNS = (
    "benchmark", "model", "workload", "engine", "requests", "steps", "simulated_s",
    "run_s", "save_s", "requests_per_s", "start_mib", "peak_mib", "saved_mib",
)  # fmt: skip


def memory_mib(field: str) -> float:
    """Return a field of this process's memory, such as its peak ``VmHWM``, in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"/proc/self/status has no {field}: the memory of a run cannot be read here")


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run one job in this process; return its row."""
    from sim.simulation import assemble, simulate

    scenario = assemble(scenario_of(job)).scenario
    start_mib, begin = memory_mib("VmRSS"), perf_counter()
    result = simulate(scenario)
    run_s = perf_counter() - begin
    check_work(result.metrics, job["requests"])
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "run"
        result.save(saved, figures=False)
        save_s = perf_counter() - begin - run_s
        saved_mib = sum(path.stat().st_size for path in saved.rglob("*")) / 2**20
    values = (
        "memory", scenario.model, scenario.workload.name, job["engine"], job["requests"],
        result.metrics["num_steps"], round(result.metrics["span_s"], 1),
        round(run_s, 2), round(save_s, 2), round(job["requests"] / run_s, 1),
        round(start_mib), round(memory_mib("VmHWM")), round(saved_mib, 1),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def scenario_of(job: dict[str, Any]) -> Any:
    """Return the scenario of a job: that of the file, with the job's choices."""
    from sim.scenario_file import load_scenario, scenario_from

    flags = {"workload.params.num_requests": job["requests"], "engine.core": job["engine"]}
    if job["model"] is not None:
        flags["model"] = job["model"]
    if job["concurrency"]:
        arrival = {"kind": "closed", "concurrency": job["concurrency"]}
        flags["workload.params.arrival"] = arrival
    return scenario_from(flags, load_scenario(job["scenario"]))


def check_work(metrics: dict[str, Any], num_requests: int) -> None:
    """Refuse to report a run in which not every request came and ended."""
    ended = {key: metrics[f"requests_{key}"] for key in ("finished", "rejected", "aborted")}
    if sum(ended.values()) != num_requests or not ended["finished"]:
        raise SystemExit(f"of {num_requests} requests ended: {ended}")


def in_a_process(job: dict[str, Any]) -> dict[str, Any] | str:
    """Return the row of a job that ran in a process of its own, or why there is none."""
    command = [sys.executable, "-m", "benchmarks.bench_memory", "--job", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return lines[-1]
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def measure(options: argparse.Namespace, writer: csv.DictWriter[str]) -> None:
    """Run every engine at every number of requests, the shortest first."""
    for engine in options.engines:
        s_per_request = 0.0
        for num_requests in sorted(options.requests):
            label = f"{engine}, {num_requests:,} requests"
            if s_per_request * num_requests > options.at_most_s:
                note(f"{label}: left out, it would take {s_per_request * num_requests:,.0f} s")
                continue
            job = {key: getattr(options, key) for key in ("scenario", "model", "concurrency")}
            row = in_a_process({**job, "engine": engine, "requests": num_requests})
            if isinstance(row, str):
                note(f"{label}: {row}")
                break
            s_per_request = row["run_s"] / num_requests
            note(f"{label}: {row['run_s']:,.1f} s, at most {row['peak_mib']:,} MiB")
            writer.writerow(row)
            sys.stdout.flush()


def note(line: str) -> None:
    """Tell whoever watches."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Print CSV rows; the first line says where they were measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--engines", nargs="+", default=["compiled", "python"])
    parser.add_argument("--scenario", default="gemma_3_27b_multi_turn")
    parser.add_argument("--model")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--at-most-s", type=float, default=1200.0)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        print(json.dumps(run(json.loads(options.job))))
        return
    where = f"# Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores"
    print(where, flush=True)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    measure(options, writer)


if __name__ == "__main__":
    main()
