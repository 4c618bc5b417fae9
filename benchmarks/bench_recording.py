"""What it costs to record the reasons of lookups: a whole scheduler with and without.

    python -m benchmarks.bench_recording [--sessions 200] [--repeats 5]

The same stream and pools as ``bench_reference``; CPU time of ``schedule`` and
``update_from_output``, the two in turn. Needs no vLLM.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.layouts import NUM_BLOCKS, pool
from benchmarks.loops import SchedulerLoop
from benchmarks.native_side import NativeSide
from benchmarks.stream import Turn, all_specs, conversations
from sim.reasons.recording import Reasons
from sim.request import RequestSpec

COLUMNS = (
    "config", "requests", "plain_s_min", "plain_s_median", "plain_s_max",
    "recorded_s_min", "recorded_s_median", "recorded_s_max", "ratio_median",
)  # fmt: skip
Stream = list[tuple[int, Turn]]


def _recording_side(config: str, specs: Sequence[RequestSpec]) -> NativeSide:
    sizes = pool(config)
    reasons = Reasons(len(sizes.kv_cache_config.kv_cache_groups))
    side = NativeSide(sizes, specs, reasons)
    reasons.attach(side.manager)
    return side


def _seconds(side: NativeSide, stream: Stream) -> float:
    SchedulerLoop(side, stream, None).run()
    return side.schedule_s + side.update_s


def row(config: str, stream: Stream, repeats: int) -> dict[str, Any]:
    """Measure one pool."""
    specs = all_specs(stream)
    plain, recorded = [], []
    for _ in range(repeats):
        plain.append(_seconds(NativeSide(pool(config), specs), stream))
        recorded.append(_seconds(_recording_side(config, specs), stream))
    ratio = statistics.median(r / p for p, r in zip(plain, recorded, strict=True))
    times = [round(x, 4) for t in (plain, recorded) for x in (min(t), statistics.median(t), max(t))]
    return dict(zip(COLUMNS, (config, len(specs), *times, round(ratio, 2)), strict=True))


def main() -> None:
    """Print CSV rows; the first line says where they were measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    stream = conversations(options.sessions)
    print(f"# Python {platform.python_version()} on {platform.machine()}", flush=True)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for config in NUM_BLOCKS:
        writer.writerow(row(config, stream, options.repeats))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
