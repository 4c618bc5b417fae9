"""How long until something happens: ``kvsim --help``, and a run before its first step.

    python -m benchmarks.bench_startup [--runs 20] [--engines python compiled]

Wall time of whole processes, from their start, alternating so that both sides of a comparison see
the same machine. ``kvsim --help`` stands beside a program of two commands that does nothing but use
typer in the same way. A run of one request is stopped when it has been simulated: everything is
loaded then, compiled code among it; it stands beside ``import numpy, pandas``.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    "what", "beside", "runs", "s_min", "s_median", "s_max",
    "beside_s_min", "beside_s_median", "beside_s_max", "ratio_median", "difference_s_median",
)  # fmt: skip
BARE = """
import typer
app = typer.Typer(name="bare", add_completion=False, rich_markup_mode=None,
                  pretty_exceptions_enable=False)
@app.command()
def one(number: int = 1) -> None:
    "Do one thing."
@app.command()
def two(number: int = 1) -> None:
    "Do another."
app()
"""
TELL = "import sys, time; sys.stdout.write(str(time.monotonic_ns())); sys.stdout.flush()"
LIBRARIES = f"import numpy, pandas; {TELL}"
RUN = f"""
import os
from sim.engine import Engine
simulated = Engine.run
def run(*args, **kwargs):
    simulated(*args, **kwargs)
    {TELL}
    os._exit(0)
Engine.run = run
from sim.cli import main
raise SystemExit(main() or "the run was not stopped")
"""
SCENARIO = (
    "run", "--model", "google/gemma-3-27b-it", "--workload-param", "num_requests=1",
    "--quiet", "--no-figures", "--force", "--waste-samples", "2",
)  # fmt: skip


def until_exit(*command: str) -> float:
    """Return how long a process takes [s]."""
    begin = time.monotonic_ns()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return (time.monotonic_ns() - begin) / 1e9


def until_told(*command: str) -> float:
    """Return how long it takes until a process writes the time on its stdout [s]."""
    begin = time.monotonic_ns()
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[-4:])}: {done.stderr.strip()}")
    return (int(done.stdout) - begin) / 1e9


Measured = tuple[str, Callable[[], float]]


def row(one: Measured, other: Measured, runs: int) -> dict[str, object]:
    """Measure two things in turn, after one of each that does not count."""
    (what, measure), (beside, measure_other) = one, other
    measure(), measure_other()
    times, others = zip(*((measure(), measure_other()) for _ in range(runs)), strict=True)
    ratio = statistics.median(times) / statistics.median(others)
    difference = statistics.median(times) - statistics.median(others)
    numbers = [round(x, 4) for t in (times, others) for x in (min(t), statistics.median(t), max(t))]
    values = (what, beside, runs, *numbers, round(ratio, 3), round(difference, 4))
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Print CSV rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--engines", nargs="*", default=["python", "compiled"])
    options = parser.parse_args()
    python = sys.executable
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE, encoding="utf-8")
        helped = "from sim.cli import main; raise SystemExit(main(['--help']))"
        ours, typer = (python, "-c", helped), (python, str(bare), "--help")
        writer.writerow(
            row(
                ("kvsim --help", lambda: until_exit(*ours)),
                ("typer --help", lambda: until_exit(*typer)),
                options.runs,
            )
        )
        libraries = ("import numpy, pandas", lambda: until_told(python, "-c", LIBRARIES))
        for engine in options.engines:
            command = (*SCENARIO, "--engine", engine, "--out", str(Path(folder) / "result"))
            begun = partial(until_told, python, "-c", RUN, *command)
            writer.writerow(row((f"kvsim run --engine {engine}", begun), libraries, options.runs))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
