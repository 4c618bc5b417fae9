"""Dynamo's mocker on the whole trace; needs ``ai-dynamo-runtime`` and nothing of ours.

    dynamo-venv/bin/python dynamo_run.py TRACE [--repeats 5]

TRACE is plain JSONL. The engine is Dynamo's default, 16,384 blocks of 64 tokens.
``wall_time_ms`` is the replay's own, without reading the file.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

from dynamo import _core


def replay(trace: str, ratio: float, engine: dict[str, Any]) -> dict[str, float]:
    """Return the times of one replay."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    result = _core.run_mocker_trace_replay(
        [trace],
        extra_engine_args={"engine": engine, "num_gpu_blocks_is_explicit": True},
        trace_block_size=512,
        trace_format="mooncake",
        arrival_speedup_ratio=ratio,
    )
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    summary = result.summary
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "inside_s": summary["wall_time_ms"] / 1e3,
        "requests": summary["completed_requests"],
        "hit_rate": summary["first_admission_prefix_cache_reused_ratio"],
    }


def main() -> None:
    """Measure, and tell the caller in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--arrival-scale", type=float, default=1.0)
    parser.add_argument("--engine", type=json.loads, default={}, help="more settings, as JSON")
    options = parser.parse_args()
    engine = {"num_gpu_blocks": 16384, "block_size": 64, **options.engine}
    rows = [replay(options.trace, options.arrival_scale, engine) for _ in range(options.repeats)]
    values: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    values["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
