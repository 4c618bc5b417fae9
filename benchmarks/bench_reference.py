"""Our manager and our scheduler beside vLLM 0.25.1's own, on one stream, in one process.

    .venv-oracle/bin/python -m benchmarks.bench_reference [--sessions 200] [--repeats 5]

For each pool (full, 3 groups, 7 groups, full and Mamba align) and each loop (a manager by itself, a
whole scheduler) both sides serve the same conversations. First one recorded pass each: every
decision and the final free queue must be equal, else there is nothing to compare. Then the sides
are measured in turn. Time is CPU time: of the manager loop less what the loop itself takes (the
same loop over answers that were given before, ``replayed_side``, measured beside each pair), and of
``schedule`` and ``update_from_output`` alone. Requests are made beforehand. Naming the prefixes of
prompts (vLLM: hashing their blocks) is a row of its own and in both totals; vLLM hashes the blocks
of outputs within the loop, we have named them at submit. Needs vLLM (docs/vllm.md).
"""

from __future__ import annotations

import argparse
import csv
import gc
import hashlib
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

from benchmarks.layouts import NUM_BLOCKS, Pool, pool
from benchmarks.loops import ManagerLoop, Record, SchedulerLoop
from benchmarks.native_side import NativeSide
from benchmarks.replayed_side import ListeningSide, ReplayedSide
from benchmarks.stream import Turn, all_specs, conversations
from benchmarks.vllm_side import VllmSide
from sim.request import RequestSpec

COLUMNS = (
    "config", "loop", "part", "requests", "steps",
    "kvsim_s_min", "kvsim_s_median", "kvsim_s_max",
    "vllm_s_min", "vllm_s_median", "vllm_s_max", "ratio_min", "ratio_median", "ratio_max",
)  # fmt: skip
Stream = list[tuple[int, Turn]]


def manager_pass(
    side: Any, sizes: Pool, stream: Stream, record: Record | None
) -> tuple[float, int]:
    """Return CPU seconds and steps of the manager loop."""
    loop = ManagerLoop(side, stream, sizes.budget, sizes.max_num_seqs, sizes.align, record)
    begin = process_time()
    steps = loop.run()
    return process_time() - begin, steps


def scheduler_pass(
    side: Any, sizes: Pool, stream: Stream, record: Record | None
) -> tuple[float, int]:
    """Return CPU seconds of ``schedule`` and ``update_from_output``, and steps."""
    steps = SchedulerLoop(side, stream, record).run()
    return side.schedule_s + side.update_s, steps


LOOPS: dict[str, Callable[..., tuple[float, int]]] = {
    "manager": manager_pass,
    "scheduler": scheduler_pass,
}


def decisions(make: Callable[[], Any], loop: str, sizes: Pool, stream: Stream) -> tuple[str, int]:
    """Return a digest of every decision and of the free queue at the end, and the steps."""
    digest, side = hashlib.sha256(), make()
    _, steps = LOOPS[loop](side, sizes, stream, lambda what: digest.update(repr(what).encode()))
    if loop == "manager":
        digest.update(repr(side.free_queue()).encode())
    return digest.hexdigest(), steps


def rows(config: str, loop: str, stream: Stream, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield one row per part: hashing, the loop, and both together."""
    specs, sizes = all_specs(stream), pool(config)
    sides = [lambda: NativeSide(sizes, specs), lambda: VllmSide(sizes, specs)]
    (ours, steps), (theirs, _) = (decisions(make, loop, sizes, stream) for make in sides)
    if ours != theirs:
        raise SystemExit(f"{config}, {loop}: decisions differ, times would mean nothing")
    parts: dict[str, list[list[float]]] = {"hashing": [[], []], "loop": [[], []], "total": [[], []]}
    loop_alone = own_time(sizes, specs, stream) if loop == "manager" else _nothing
    for _ in range(repeats):
        own_s = loop_alone()
        for place, make in enumerate(sides):
            gc.collect()
            side = make()
            # As vLLM's engine does: what stands when the work begins is not looked at again.
            gc.freeze()
            loop_s = LOOPS[loop](side, sizes, stream, None)[0] - own_s
            for name, value in (("hashing", side.hashing_s), ("loop", loop_s)):
                parts[name][place].append(value)
            gc.unfreeze()
            parts["total"][place].append(side.hashing_s + loop_s)
    for name, (native, vllm) in parts.items():
        yield _row((config, loop, name, len(specs), steps), native, vllm)


def _nothing() -> float:
    return 0.0


def own_time(sizes: Pool, specs: list[RequestSpec], stream: Stream) -> Callable[[], float]:
    """Return what measures the CPU seconds of the manager loop without a manager."""
    told = ListeningSide(sizes, specs)
    manager_pass(told, sizes, stream, None)
    return lambda: manager_pass(ReplayedSide(told, sizes, specs), sizes, stream, None)[0]


def _row(head: tuple[Any, ...], native: list[float], vllm: list[float]) -> dict[str, Any]:
    ratios = [v / n for n, v in zip(native, vllm, strict=True)]
    values = [round(x, 4) for times in (native, vllm) for x in _three(times)]
    return dict(zip(COLUMNS, (*head, *values, *(round(r, 2) for r in _three(ratios))), strict=True))


def _three(values: list[float]) -> tuple[float, float, float]:
    return min(values), statistics.median(values), max(values)


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
        for loop in LOOPS:
            for row in rows(config, loop, stream, options.repeats):
                writer.writerow(row)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
