"""Several routers before the same replicas and requests: one table, one figure."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from sim.cluster.config import ClusterScenario, RouterPlugin
from sim.errors import ConfigError
from sim.plots import save_figure
from sim.plots.routers import SIZE_INCHES, draw

TABLE = "routers.csv"
FIGURE = "routers"

_FIRST = (
    "router",
    "num_replicas",
    "prefix_hit_rate",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "request_throughput",
    "prefill_tokens_computed",
    "prefill_tokens_max_over_mean",
    "prefill_tokens_cv",
    "running_max_over_mean",
    "running_cv",
)
"""Columns that come first in the table; the others follow by name."""

Summary = Mapping[str, Any]


def with_router(scenario: ClusterScenario, router: RouterPlugin) -> ClusterScenario:
    """Return the same scenario behind another router."""
    cluster = scenario.cluster.model_copy(update={"router": router})
    return scenario.model_copy(update={"cluster": cluster})


def comparison_id(run_ids: Sequence[str]) -> str:
    """Return 12 hex digits that name a comparison of these runs."""
    return sha256(" ".join(run_ids).encode()).hexdigest()[:12]


def folder_name(router_text: str) -> str:
    """Return the name of a router's folder in a comparison.

    >>> folder_name("prefix_aware:delay_ms=50")
    'prefix_aware,delay_ms=50'
    """
    return router_text.replace(":", ",")


def rows(summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return one flat row per router: totals, imbalance, and what its index promised."""
    found = [
        {
            **{name: summary[name] for name in ("router", "num_replicas", "run_id")},
            **summary["totals"],
            **summary["imbalance"],
            **(summary["index"] or {}),
        }
        for summary in summaries
    ]
    others = sorted({name for row in found for name in row} - set(_FIRST))
    return [{name: row.get(name) for name in (*_FIRST, *others)} for row in found]


def check_folder(folder: Path) -> None:
    """Raise ConfigError unless a comparison may be written to ``folder``: new, empty, or one."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and (not any(folder.iterdir()) or _holds_clusters(folder)):
        return
    allowed = "a new or empty folder, or one that holds a comparison of routers"
    raise ConfigError.one("out", str(folder), allowed)


def _holds_clusters(folder: Path) -> bool:
    own = {TABLE, f"{FIGURE}.svg", f"{FIGURE}.png"}
    return all(
        path.name in own or path.name.startswith(".") or (path / "cluster.json").is_file()
        for path in folder.iterdir()
    )


def save_comparison(summaries: Sequence[Summary], folder: Path) -> list[str]:
    """Write the table and the figure beside the results; return the files' names, sorted."""
    folder.mkdir(parents=True, exist_ok=True)
    table = rows(summaries)
    with (folder / TABLE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    files = save_figure(lambda figure: draw(summaries, figure), folder, FIGURE, SIZE_INCHES)
    return sorted([TABLE, *(path.name for path in files)])
