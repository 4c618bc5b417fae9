"""Hits of one chain at 15 capacities, beside kvcache-simulator 0.1.3 (PyPI) on the same work.

    python -m benchmarks.bench_curve TRACE --other VENV [--runs 5] [--model google/gemma-3-27b-it]

VENV is an environment with ``kvcache-simulator==0.1.3``. Its LRU replays the trace once for each
capacity, in C++ that it compiles at its first use; ours makes one pass for all. Same file, same
blocks of 512 tokens, same capacities. Both are run once before anything is measured, so compiling
does not count; then in turn. It counts hits in the last half of the requests only, so that is
what is compared: the hit tokens must be equal at every capacity, or there are no times.

Rows: the whole commands, from start to end of the process, and counting alone, after the trace was
read. With a model, also what its groups cost at the same number of capacities (once: a minute or
more). What kvcache-simulator models: one chain of blocks, LRU, FIFO and Belady's optimum, and the
bytes of a block for a catalogue of models. What it does not: several groups, outputs, blocks of
another size than the trace's, blocks that are held while a request runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sim.curve.blocks import sums_before
from sim.curve.capacities import log_spaced
from sim.curve.hit_curve import HitCurve
from sim.curve.numbering import Numbering
from sim.curve.reading import listed_batches
from sim.curve.stack_distances import DEFINITIONS
from sim.curve.totals import block_tokens
from workloads.mooncake import MooncakeParams

ROOT = Path(__file__).resolve().parents[1]
BLOCK_SIZE, POINTS = 512, 15
MODEL, BYTES_PER_TOKEN = "llama-3.1-8b", 131_072  # of its catalogue; only sets what a block weighs
COLUMNS = (
    "what", "capacities", "runs", "s_min", "s_median", "s_max",
    "other", "other_s_min", "other_s_median", "other_s_max", "ratio_median",
)  # fmt: skip
COUNT_ALONE = """
import json, sys, time
from kvcache_sim.cpp_backend import run_cpp_sweep
from kvcache_sim.trace import parse_trace_file
path, runs, capacities = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
trace = parse_trace_file(path, block_size=512, max_records=0, max_events=0)
for _ in range(runs + 1):
    begin = time.perf_counter()
    run_cpp_sweep(trace, capacities=capacities, policies=["lru"],
                  warmup_requests=trace.request_count // 2)
    print(time.perf_counter() - begin)
"""


class Served:
    """The trace with its numbers, for what is asked of it besides the curve."""

    def __init__(self, path: Path):
        self.batches, numbering = [], Numbering()
        for batch in listed_batches(MooncakeParams(path=path, block_size=BLOCK_SIZE)):
            self.batches.append(batch._replace(ids=numbering.of(batch.ids)))

    def curve(self) -> tuple[HitCurve, list[np.ndarray]]:
        curve = HitCurve(DEFINITIONS["leaf_first"], BLOCK_SIZE)
        return curve, [curve.add(batch) for batch in self.batches]

    def hit_tokens_of_last_half(self, capacities: list[int]) -> list[int]:
        """Hit tokens of the requests behind the first half, at each capacity."""
        curve, depths = self.curve()
        first = curve.totals.num_requests // 2
        sums, before = np.zeros(len(capacities), np.int64), 0
        for batch, depth in zip(self.batches, depths, strict=True):
            start = batch.starts[np.clip(first - before, 0, len(batch.num_lookups))]
            tokens = block_tokens(batch, BLOCK_SIZE)[start:]
            own = depth[start:]
            sums += [int(tokens[(own > 0) & (own <= capacity)].sum()) for capacity in capacities]
            before += len(batch.num_lookups)
        return sums.tolist()

    def capacities(self) -> list[int]:
        """From the longest request to what the first half fills: it leaves larger ones out."""
        curve, _ = self.curve()
        lengths = np.concatenate([np.diff(batch.starts) for batch in self.batches])
        end = sums_before(lengths)[len(lengths) // 2]
        ids = np.concatenate([batch.ids for batch in self.batches])[:end]
        return log_spaced(curve.totals.longest_request, len(np.unique(ids)), POINTS)


def their_command(venv: Path, trace: Path, capacities: list[int], out: Path) -> list[str]:
    gib = BYTES_PER_TOKEN * BLOCK_SIZE / 2**30
    budgets = ",".join(f"{(capacity + 0.5) * gib:.9f}" for capacity in capacities)
    return [
        str(venv / "bin" / "kvcache-simulator"), "run", "--trace", str(trace), "--model", MODEL,
        "--block-size", str(BLOCK_SIZE), "--policies", "lru", "--budgets-gib", budgets,
        "--no-progress", "--format", "json", "--output", str(out),
    ]  # fmt: skip


def our_command(trace: Path, capacities: list[int], out: Path) -> list[str]:
    listed = ",".join(map(str, capacities))
    return [
        sys.executable, "-m", "sim", "curve", str(trace), "--capacities", listed,
        "--out", str(out), "--no-figures", "--quiet", "--json",
    ]  # fmt: skip


def seconds_of(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - begin


def check_equal(served: Served, capacities: list[int], path: Path) -> None:
    """Raise unless both count the same hit tokens at every capacity."""
    points = json.loads(path.read_text(encoding="utf-8"))["points"]
    theirs = {point["cacheBlocks"]: point["results"]["lru"]["hitTokens"] for point in points}
    own = dict(zip(capacities, served.hit_tokens_of_last_half(capacities), strict=True))
    if own != theirs:
        raise SystemExit(f"hit tokens of the last half differ:\n{own}\n{theirs}")


def row(what: str, own: list[float], other: str, others: list[float]) -> dict[str, object]:
    numbers = [round(x, 4) for t in (own, others) for x in (min(t), statistics.median(t), max(t))]
    ratio = statistics.median(others) / statistics.median(own)
    values = (what, POINTS, len(own), *numbers[:3], other, *numbers[3:], round(ratio, 2))
    return dict(zip(COLUMNS, values, strict=True))


def whole_commands(served: Served, trace: Path, venv: Path, runs: int) -> dict[str, object]:
    capacities = served.capacities()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "other.json"
        ours = our_command(trace, capacities, Path(folder) / "curve")
        theirs = their_command(venv, trace, capacities, answer)
        seconds_of(ours), seconds_of(theirs)
        check_equal(served, capacities, answer)
        pairs = [(seconds_of(ours), seconds_of(theirs)) for _ in range(runs)]
    own, others = map(list, zip(*pairs, strict=True))
    return row("kvsim curve, whole command", own, "kvcache-simulator run, lru", others)


def counting_alone(served: Served, trace: Path, venv: Path, runs: int) -> dict[str, object]:
    capacities = served.capacities()
    own = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        curve, _ = served.curve()
        curve.hits(capacities), curve.hit_tokens(capacities)
        own.append(time.perf_counter() - begin)
    command = [
        str(venv / "bin" / "python"), "-c", COUNT_ALONE, str(trace), str(runs),
        json.dumps(capacities),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    others = [float(line) for line in done.stdout.split()]
    return row("trace in memory: one pass", own[1:], "trace in memory: run_cpp_sweep", others[1:])


def with_groups(trace: Path, model: str) -> dict[str, object]:
    """A curve of a model at 15 capacities; its chain alone stands beside it."""
    from sim.curve.groups import model_groups
    from sim.curve.making import Question, chain_curve
    from sim.curve.model_making import model_curve

    groups = model_groups(model, {})
    head = Question(MooncakeParams(path=trace, max_requests=20), points=2)
    model_curve(head, groups)  # compiles
    question = Question(MooncakeParams(path=trace), points=POINTS)
    times = []
    for make in (
        lambda: model_curve(question, groups),
        lambda: chain_curve(Question(question.trace, block_size=groups.block_size, points=POINTS)),
    ):
        begin = time.perf_counter()
        make()
        times.append([time.perf_counter() - begin])
    what = f"{model}: {groups.num_groups} groups and one chain, blocks of {groups.block_size}"
    return row(what, times[0], "one chain of the same blocks", times[1])


def main() -> None:
    """Print CSV rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model")
    options = parser.parse_args()
    trace = options.trace.resolve()
    served = Served(trace)
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerow(whole_commands(served, trace, options.other, options.runs))
    writer.writerow(counting_alone(served, trace, options.other, options.runs))
    sys.stdout.flush()
    if options.model:
        writer.writerow(with_groups(trace, options.model))


if __name__ == "__main__":
    main()
