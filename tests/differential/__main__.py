"""``python -m tests.differential``: search for differences for a while, in several processes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.differential.random_worlds import LEVELS
from tests.differential.report import report
from tests.differential.search import Tally, search

MODULE = "tests.differential"


def main() -> int:
    """Return 1 if any world failed."""
    args = arguments()
    if args.part is not None:
        print(search(args.seed, args.part, args.processes, args.seconds, args.levels).dumps())
        return 0
    started = time.monotonic()
    print(f"seed {args.seed}, {args.processes} processes, {args.seconds:.0f} s", flush=True)
    tally = Tally()
    for part in run_parts(args):
        tally.add(part)
    print(report(tally, args.seed, time.monotonic() - started))
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).write_text(json.dumps(as_json(tally, args.seed), indent=1) + "\n")
    save_failures(tally, args.failures)
    return 1 if tally.failures else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same worlds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--levels", nargs="+", choices=list(LEVELS), default=list(LEVELS))
    parser.add_argument("--json", help="file for the counts")
    parser.add_argument("--failures", help="folder for worlds that failed", default="runs")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_parts(args: argparse.Namespace) -> list[Tally]:
    """Run one process per part; a part that dies ends this program with its output."""
    processes = []
    for part in range(args.processes):
        command = [sys.executable, "-m", MODULE, "--part", str(part), "--seed", str(args.seed)]
        command += ["--seconds", str(args.seconds), "--processes", str(args.processes)]
        command += ["--levels", *args.levels]
        # Sets of texts are ordered by this; the seed names the worlds only if it is fixed.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
    texts = [process.communicate()[0].decode() for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("\n".join(texts) + "\na process ended with an error")
    return [Tally.loads(text.splitlines()[-1]) for text in texts]


def as_json(tally: Tally, seed: int) -> dict[str, object]:
    plain: dict[str, object] = json.loads(tally.dumps())
    return {"seed": seed, **plain}


def save_failures(tally: Tally, folder: str) -> None:
    for failure in tally.failures:
        Path(folder).mkdir(parents=True, exist_ok=True)
        path = Path(folder) / f"failed_{failure.level}_{failure.seed}.json"
        path.write_text(failure.world + "\n")
        print(f"saved {path}")


if __name__ == "__main__":
    sys.exit(main())
