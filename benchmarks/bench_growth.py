"""How time grows: with requests, prompt length, size of the pool and number of groups.

    python -m benchmarks.bench_growth [--series requests prompt pool groups] [--core compiled]

Whole runs of ``simulate``, CPU time, five repeats after one that counts the work and warms up; one
where that takes more than a minute. A block operation is a block taken, touched, registered,
evicted or given back; look-ups are not counted, their time is in. Slopes are those of least squares
through the logarithms of the medians: 1 is proportional, 0 does not grow. Writes ``growth.csv`` and
``growth.png``, prints the table.

requests : the multi-turn workload, 32 sessions at a time, Gemma-3-27b's seven groups, 60 GiB
prompt : 400 requests of one length that share nothing, 8 at a time
pool : requests of 4,000 tokens that share nothing, 8 at a time, in pools of so many blocks
groups : models of one full and n - 1 sliding groups, the same blocks and requests
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.block_operations import BlockOperations, CountingObserver, compiled_operations
from benchmarks.growth_report import draw, table
from sim.config import Scenario, validated
from sim.models.files import find_model
from sim.simulation import simulate

GEMMA = "google--gemma-3-27b-it"
COLUMNS = (
    "series", "core", "x", "requests", "steps", "operations",
    "cpu_s_min", "cpu_s_median", "cpu_s_max", "ns_per_operation", "us_per_request",
)  # fmt: skip
LONG_S = 60.0
SIZES = {
    "requests": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "prompt": (1_000, 4_000, 16_000, 64_000),
    "pool": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "groups": (1, 2, 4, 8, 16),
}


def multi_turn(num_requests: int, concurrency: int, **params: Any) -> dict[str, Any]:
    """Return a closed multi-turn workload: so many sessions go on at a time."""
    arrival = {"kind": "closed", "concurrency": concurrency}
    params = {"num_requests": num_requests, "arrival": arrival, **params}
    return {"name": "multi_turn", "params": params}


def by_requests(x: int, count: int) -> dict[str, Any]:
    return {"model": GEMMA, "workload": multi_turn(x, 32)}


def sharing_nothing(num_tokens: int, count: int) -> dict[str, Any]:
    """Return requests of one length, of sessions with one turn: the same work in every pool."""
    lengths = {
        "mean_turns": 1,
        "num_system_prompts": 1,
        "system_prompt": {"mean": 1},
        "first_user": {"mean": num_tokens},
        "output": {"mean": 32},
        "max_session_tokens": 2 * num_tokens + 64,
    }
    return multi_turn(count, 8, **lengths)


def by_prompt(x: int, count: int) -> dict[str, Any]:
    return {"model": GEMMA, "workload": sharing_nothing(x, min(count, 400))}


def by_pool(x: int, count: int) -> dict[str, Any]:
    # A request of the model's own length would not fit the smallest pool.
    shorter, pool = {"max_model_len": 32_768}, {"num_gpu_blocks_override": x}
    work = sharing_nothing(4_000, count)
    return {"model": GEMMA, "cache": pool, "scheduler": shorter, "workload": work}


def by_groups(x: int, count: int) -> dict[str, Any]:
    pool = {"num_gpu_blocks_override": 50_000}
    return {"model": str(_model(x)), "cache": pool, "workload": multi_turn(count, 8)}


SERIES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "requests": by_requests,
    "prompt": by_prompt,
    "pool": by_pool,
    "groups": by_groups,
}
_FOLDER = tempfile.TemporaryDirectory()


def _model(num_groups: int) -> Path:
    """Write a Gemma-3 whose every num_groups-th layer is full: so many groups of four layers."""
    config = json.loads(find_model(GEMMA).read_text(encoding="utf-8"))
    config.pop("_facts", None)
    config["text_config"] |= {
        "num_hidden_layers": 4 * num_groups,
        "sliding_window_pattern": num_groups,
    }
    path = Path(_FOLDER.name) / f"groups_{num_groups}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def counted(scenario: Scenario, core: str) -> tuple[BlockOperations, int, int]:
    """Run once; return the operations, and the numbers of steps and of requests that finished."""
    if core == "compiled":
        operations, result = _counted_compiled(scenario)
    else:
        observer = CountingObserver()
        result, operations = simulate(scenario, observer=observer), observer.operations
    return operations, len(result.steps), result.metrics["requests_finished"]


def _counted_compiled(scenario: Scenario) -> tuple[BlockOperations, Any]:
    from sim.engine_core_compiled import CompiledEngineCore

    cores: list[Any] = []
    build = CompiledEngineCore.__init__

    def noting(core: Any, *args: Any, **kwargs: Any) -> None:
        build(core, *args, **kwargs)
        cores.append(core)

    CompiledEngineCore.__init__ = noting  # type: ignore[method-assign]
    try:
        result = simulate(scenario)
    finally:
        CompiledEngineCore.__init__ = build  # type: ignore[method-assign]
    return compiled_operations(cores[-1]), result


def times(scenario: Scenario, num_steps: int, repeats: int) -> list[float]:
    """Return the CPU times [s]; a run that does other work is an error."""
    found: list[float] = []
    while len(found) < repeats:
        begin = process_time()
        result = simulate(scenario)
        found.append(process_time() - begin)
        if len(result.steps) != num_steps:
            raise SystemExit(f"expected {num_steps} steps, the run did {len(result.steps)}")
        if found[-1] > LONG_S:
            break
    return found


def row(series: str, core: str, x: int, count: int, repeats: int) -> dict[str, Any]:
    """Measure one point of a series."""
    data = {**SERIES[series](x, count), "engine": {"core": core}}
    scenario = validated(Scenario, data)
    operations, steps, requests = counted(scenario, core)
    seconds = times(scenario, steps, repeats)
    middle = statistics.median(seconds)
    values = (
        series, core, x, requests, steps, operations.changes,
        round(min(seconds), 4), round(middle, 4), round(max(seconds), 4),
        round(middle / operations.changes * 1e9, 2), round(middle / requests * 1e6, 2),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Measure; write after each point, so that what is done stays."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--core", choices=("python", "compiled"), default="compiled")
    parser.add_argument("--sizes", type=int, nargs="+", help="instead of each series' own")
    parser.add_argument("--count", type=int, default=10_000, help="requests of the other series")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for series in options.series:
        for x in options.sizes or SIZES[series]:
            rows.append(row(series, options.core, x, options.count, options.repeats))
            with (options.out / "growth.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            sys.stderr.write(f"{series} {x}: {rows[-1]['cpu_s_median']} s\n")
    draw(rows, options.out / "growth.png")
    sys.stdout.write("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
