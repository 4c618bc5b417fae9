"""The conversation trace through vLLM's own classes, both our engines, and other simulators.

    python -m benchmarks.bench_scale TRACE --vllm-python P --dynamo-python P --kvcache-python P
        [--out FOLDER] [--models M ...] [--sides S ...] [--keep]

Each side runs alone, in a process and an interpreter of its own, one after the other; a side whose
interpreter is not given is left out, and the table says so. Five times each, once where one takes
more than a minute. Requests per second are those of CPU time (see docs/performance.md), from the
median. Writes ``scale.csv`` and ``scale.png`` into FOLDER and prints the table. With ``--keep``
what ``scale.csv`` says about other sides and models stays: then it is not one run any more.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scale.cases import MODELS

HERE = Path(__file__).resolve().parent
ANY = "(any)"
COLUMNS = (
    "side", "model", "requests", "repeats", "s_min", "s_median", "s_max",
    "requests_per_s", "wall_s_median", "peak_gib", "note",
)  # fmt: skip
MODELLED = {
    "vllm manager": "vLLM 0.25.1's KVCacheManager: lookup, blocks of all groups, eviction; no "
    "scheduler, no time. 32 requests at a time.",
    "vllm scheduler": "vLLM 0.25.1's Scheduler with that manager; no time, no arrivals.",
    "kvsim python": "Scheduler, manager, arrivals and step times, with all result tables.",
    "kvsim compiled": "The same, compiled.",
    "dynamo mocker": "Scheduler, arrivals, step times (a polynomial) and one chain of 16,384 "
    "blocks of 64 tokens; no window, no recurrent state, no groups with prefix caching.",
    "dynamo mocker, 16": "The same with blocks of 16 tokens, as all other sides have: 65,536 of "
    "them, the same tokens.",
    "kvcache-simulator": "Hits of one chain of the trace's 512-token blocks under LRU, one "
    "request after the other; no outputs, no scheduler, no time.",
}
"""What each side models and what it does not."""


@dataclass(frozen=True, slots=True)
class Side:
    """A side of the comparison: how it is called, and which of its numbers become rows.

    rows : (what is added to the side's name, the number of seconds)
    """

    name: str
    python: str | None
    arguments: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    models: tuple[str, ...]


def sides(options: argparse.Namespace, trace: Path) -> Iterator[Side]:
    """Yield what is to be measured, in order."""
    models = tuple(options.models)
    own, scale = sys.executable, ("--arrival-scale", str(options.arrival_scale))
    repeats = ("--repeats", str(options.repeats))
    head = (*repeats, "--requests", str(options.head))
    vllm = ("-m", "benchmarks.scale.vllm_run", "{model}", str(trace), *head, "--loop")
    parts = ((" (total)", "cpu_s"), (" (hashing)", "hashing_s"))
    yield Side("vllm manager", options.vllm_python, (*vllm, "manager"), parts, models)
    yield Side("vllm scheduler", options.vllm_python, (*vllm, "scheduler"), parts, models)
    ours = ("-m", "benchmarks.scale.kvsim_run", "{model}", str(trace), *scale)
    whole = (("", "cpu_s"), (" (core)", "core_s"))
    yield Side("kvsim python", own, (*ours, *head, "--core", "python"), whole, models)
    compiled = (*ours, *repeats, "--core", "compiled")
    if options.requests is not None:
        compiled += ("--requests", str(options.requests))
    yield Side("kvsim compiled", own, compiled, whole, models)
    dynamo = (str(HERE / "scale/dynamo_run.py"), str(trace), *repeats, *scale)
    parts = (("", "cpu_s"), (" (replay)", "inside_s"))
    yield Side("dynamo mocker", options.dynamo_python, dynamo, parts, (ANY,))
    small = (*dynamo, "--engine", '{{"block_size": 16, "num_gpu_blocks": 65536}}')
    yield Side("dynamo mocker, 16", options.dynamo_python, small, parts, (ANY,))
    kvcache = (str(HERE / "scale/kvcache_run.py"), str(trace), *repeats)
    yield Side("kvcache-simulator", options.kvcache_python, kvcache, (("", "cpu_s"),), (ANY,))


def measured(side: Side, model: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a side and a model; one that says why where there are no numbers."""
    if side.python is None:
        yield _row(side.name, model, note="left out: no interpreter given")
        return
    command = [side.python, *(a.format(model=model) for a in side.arguments)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no word why"]
        yield _row(side.name, model, note=f"failed: {last[0]}")
        return
    values = json.loads(done.stdout.strip().splitlines()[-1])
    for suffix, name in side.rows:
        yield numbers_row(side.name + suffix, model, values, name)


def numbers_row(side: str, model: str, values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the row of one of the numbers that a side told."""
    seconds, requests = values[name], values["requests"][0]
    middle = statistics.median(seconds)
    return _row(
        side,
        model,
        requests=int(requests),
        repeats=len(seconds),
        s_min=round(min(seconds), 4),
        s_median=round(middle, 4),
        s_max=round(max(seconds), 4),
        requests_per_s=round(requests / middle, 1),
        wall_s_median=round(statistics.median(values.get("wall_s", seconds)), 4),
        peak_gib=round(values["peak_bytes"] / 2**30, 2),
        note=_note(values, middle),
    )


def _note(values: dict[str, Any], seconds: float) -> str:
    """Return what else there is to say: a hit rate, or the time per block operation."""
    if "hit_rate" in values:
        return f"hit rate {values['hit_rate'][0]:.4f}"
    operations = values.get("operations", [0])[0]
    if not operations:
        return ""
    return f"{operations:,} blocks changed hands, {seconds / operations * 1e9:.1f} ns each"


def _row(side: str, model: str, **values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS, ""), "side": side, "model": model, **values}


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; ratios are to vLLM's manager with its hashing."""
    base = {
        row["model"]: float(row["requests_per_s"])
        for row in rows
        if row["side"] == "vllm manager (total)"
    }
    yield "| model | side | requests | s, min / median / max | requests/s | times vLLM's manager |"
    yield "|---|---|--:|--:|--:|--:|"
    for row in sorted(rows, key=lambda row: _place(row["model"])):
        if row["requests_per_s"] == "":
            yield f"| {row['model']} | {row['side']} | {row['note']} | | | |"
            continue
        rate, of_model = float(row["requests_per_s"]), base.get(row["model"])
        times = f"{rate / of_model:,.1f}" if of_model else ""
        three = " / ".join(f"{float(row[f's_{what}']):,.2f}" for what in ("min", "median", "max"))
        yield (
            f"| {row['model']} | {row['side']} | {int(row['requests']):,} | {three} "
            f"| {rate:,.0f} | {times} |"
        )
    yield ""
    yield from (f"* {name}: {text}" for name, text in MODELLED.items())


def _is_of(row: dict[str, Any], side: str, model: str) -> bool:
    return row["side"].partition(" (")[0] == side and row["model"] == model


def _place(model: str) -> int:
    return [*MODELS, ANY].index(model)


def write_csv(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write the rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Return the rows that ``write_csv`` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def plain(trace: Path, folder: Path) -> Path:
    """Return a trace that everybody can read: uncompressed."""
    if trace.suffix != ".gz":
        return trace.resolve()
    target = folder / trace.stem
    with gzip.open(trace) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return target


def main() -> None:
    """Measure side by side; write and print after each, so that what is done stays."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    for name in ("vllm", "dynamo", "kvcache"):
        parser.add_argument(f"--{name}-python")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--sides", nargs="+", default=list(MODELLED), choices=MODELLED)
    parser.add_argument("--head", type=int, default=1000, help="requests for vLLM and Python")
    parser.add_argument("--requests", type=int, help="requests for the compiled engine, else all")
    parser.add_argument("--arrival-scale", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--keep", action="store_true", help="rows of sides not measured now")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "scale.csv"
    rows = read_csv(target) if options.keep and target.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for side in sides(options, plain(options.trace, Path(folder))):
            for model in side.models if side.name in options.sides else ():
                found = list(measured(side, model))
                rows = [r for r in rows if not _is_of(r, side.name, model)] + found
                write_csv(rows, target)
                sys.stderr.write(f"{rows[-1]['side']}, {model}: {rows[-1]['requests_per_s']}\n")
    from benchmarks.scale.figure import draw

    draw(rows, options.out / "scale.png")
    sys.stdout.write("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
