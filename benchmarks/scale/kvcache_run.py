"""kvcache-simulator on the whole trace, LRU at one capacity; needs that package, nothing of ours.

    kvcache-venv/bin/python kvcache_run.py TRACE [--repeats 5]

Blocks are the trace's, of 512 tokens. ``inside_s`` is the sweep without reading the file; it
writes the trace for its C++ program and runs that. A first run compiles the program.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

from kvcache_sim.simulator import run_sweep
from kvcache_sim.trace import parse_trace_file


def sweep(trace: str, gib: float, backend: str) -> dict[str, float]:
    """Return the times of one run."""
    begin_s, begin_cpu_s = time.perf_counter(), _cpu_s()
    data = parse_trace_file(trace, block_size=512, max_records=0, max_events=0)
    read_s = time.perf_counter()
    result = run_sweep(
        data, model_id="llama-3.1-8b", budgets_gib=[gib], policies=["lru"], backend=backend
    )
    end_s = time.perf_counter()
    point = result["points"][0] if result["points"] else None
    return {
        "wall_s": end_s - begin_s,
        "cpu_s": _cpu_s() - begin_cpu_s,
        "inside_s": end_s - read_s,
        "requests": data.request_count,
        "hit_rate": point["results"]["lru"]["hitRate"] if point else -1.0,
    }


def _cpu_s() -> float:
    """Return the CPU time of this process and of those it started and waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def main() -> None:
    """Measure, and tell the caller in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--gib", type=float, default=60.0)
    parser.add_argument("--backend", choices=("cpp", "python"), default="cpp")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    sweep(options.trace, options.gib, options.backend)
    rows = [sweep(options.trace, options.gib, options.backend) for _ in range(options.repeats)]
    values: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    values["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
