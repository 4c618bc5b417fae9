"""The tables and figures of docs/cluster.md: four routers before eight replicas.

python results/routers/make.py TRACE [REQUESTS]

TRACE is Mooncake's conversation trace (docs/traces.md). It has no sessions, so that the router
``session`` goes by the first 1,024 tokens of a prompt: all prompts share the first 512. The trace
is played at three times its speed for Llama-3.1-8B and at its own for Gemma-3-27b. REQUESTS: only
so many.

Writes for each model ``routers.csv``, ``routers.png`` and ``routers.svg``, of the whole trace, and
``late.csv``, of its first 4,000 requests: what ``prefix_aware`` loses by a late index, by its
weight of load, and by an index that knows one chain of blocks per prompt.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.cluster.comparison import FIGURE, TABLE, rows, with_router
from sim.cluster.config import ClusterScenario, RouterPlugin, with_cluster
from sim.cluster.router_text import read_routers
from sim.cluster.simulation import simulate_cluster
from sim.plots import save_figure
from sim.plots.routers import SIZE_INCHES, draw
from sim.scenario_file import load_scenario, scenario_from

HERE = Path(__file__).parent
REPLICAS = 8
MODELS = {"llama_3_1_8b": 3.0, "gemma_3_27b": 1.0}
"""Scenario -> speed of the trace."""
ROUTERS = ["round_robin,least_loaded,prefix_aware,session:prefix_tokens=1024"]
LATE = [
    "prefix_aware",
    *(f"prefix_aware:delay_ms={delay}" for delay in (0, 1000, 10_000, 60_000)),
    *(f"prefix_aware:load_weight={weight}" for weight in (0, 0.25, 4)),
]
CHAIN = ["prefix_aware", "prefix_aware:groups=full"]
SHORT = 4000

Summary = Mapping[str, Any]


def scenario(model: str, speed: float, trace: str, num_requests: int | None) -> ClusterScenario:
    """Return eight replicas of a model under the trace."""
    keys = {
        "workload.params.path": trace,
        "workload.params.arrival.arrival_scale": speed,
        "workload.params.max_requests": num_requests,
    }
    plain = scenario_from(keys, load_scenario(f"{model}_mooncake"))
    return with_cluster(plain, {"replicas": REPLICAS})


def summaries(base: ClusterScenario, routers: Iterable[str]) -> list[Summary]:
    """Run a scenario behind each router; print a line for each."""
    found = []
    for router in read_routers(routers, {}, RouterPlugin()):
        summary = simulate_cluster(with_router(base, router)).summary()
        total = summary["totals"]
        print(
            base.model,
            summary["router"],
            *(f"{total[name]:.4g}" for name in ("prefix_hit_rate", "ttft_p50_s", "ttft_p99_s")),
            flush=True,
        )
        found.append(summary)
    return found


def write_table(found: Sequence[Summary], path: Path) -> None:
    """Write a row per router; run ids are left out, they name the place of the trace."""
    table = [{k: v for k, v in row.items() if k != "run_id"} for row in rows(found)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def main() -> None:
    """Write everything beside this file."""
    trace = sys.argv[1]
    num_requests = int(sys.argv[2]) if len(sys.argv) > 2 else None
    for model, speed in MODELS.items():
        folder = HERE / model
        folder.mkdir(exist_ok=True)
        base = scenario(model, speed, trace, num_requests)
        found = summaries(base, ROUTERS)
        write_table(found, folder / TABLE)
        save_figure(lambda figure, f=found: draw(f, figure), folder, FIGURE, SIZE_INCHES)
        more = LATE if model.startswith("llama") else CHAIN
        short = scenario(model, speed, trace, min(num_requests or SHORT, SHORT))
        write_table(summaries(short, more), folder / "late.csv")


if __name__ == "__main__":
    main()
