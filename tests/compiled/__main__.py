"""``python -m tests.compiled``: search for differences between both engines for a while.

With NUMBA_DISABLE_JIT=1, or without Numba, the loops of the compiled engine run in plain Python.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from sim.jit import is_available
from tests.compiled.search import DRAWN, Tally, as_json, search
from tests.differential.__main__ import save_failures


def main() -> int:
    """Return 1 if any world failed."""
    args = arguments()
    how = "compiled" if is_available() else "in plain Python"
    print(f"seed {args.seed}, {args.seconds:.0f} s, the compiled engine runs {how}", flush=True)
    started = time.monotonic()
    tally = search(args.seed, args.seconds, args.levels)
    print(report(tally, args.seed, time.monotonic() - started))
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        told = as_json(tally, args.seed, is_available())
        Path(args.json).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    save_failures(tally, args.failures)
    return 1 if tally.failures else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compiled", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same worlds")
    parser.add_argument("--levels", nargs="+", choices=list(DRAWN), default=list(DRAWN))
    parser.add_argument("--json", help="file for the counts")
    parser.add_argument("--failures", help="folder for worlds that failed", default="runs")
    return parser.parse_args()


def report(tally: Tally, seed: int, wall_s: float) -> str:
    """Return the failures, what was reached, and the totals last."""
    lines = []
    for failure in tally.failures:
        lines += [f"DIFFERENCE: {failure.level} world of seed {failure.seed}", failure.told]
        lines += [f"  the world: {failure.world}", ""]
    for title, counts in (
        ("reached", tally.features),
        ("left out of worlds (the first reason of each)", tally.left_out),
        ("not covered", tally.not_covered),
        ("ended where the Python engine stops", tally.refused),
    ):
        lines += [f"{title}:", *(f"  {name}  {n:,}" for name, n in sorted(counts.items())), ""]
    worlds, calls = sum(tally.worlds.values()), sum(tally.calls.values())
    lines += [
        f"seed {seed}: {worlds:,} worlds ({tally.worlds['manager']:,} of managers, "
        f"{tally.worlds['scheduler']:,} of schedulers, {tally.worlds['engine']:,} of engines), "
        f"{calls:,} calls compared, {tally.steps:,} of them scheduler steps; "
        f"{tally.engine_steps:,} steps of engines; "
        f"{sum(tally.not_covered.values()):,} worlds not covered",
        f"{tally.cpu_s:,.0f} s of CPU, {wall_s:,.0f} s on the clock; "
        f"{len(tally.failures)} differences",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
