"""ClusterResult: what a run of several replicas leaves behind, in memory and on disk."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.cluster.config import ClusterScenario
from sim.cluster.front import Routed
from sim.cluster.numbers import imbalance, promises, replica_rows, totals
from sim.cluster.router_text import router_text
from sim.errors import ConfigError
from sim.result_folder import new_folder
from sim.results import RunResult, write_json
from sim.scenario_file import scenario_yaml
from sim.tables import write_parquet

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
"""Of ``cluster.json``; rises when a name in it changes."""


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """One run: its resolved scenario, a plain result for each replica, and all requests.

    requests : in the order in which they were submitted; the columns of ``sim.tables``, the
        ``replica``, and ``expected_tokens`` that the router's index promised
    provenance is the only part that two runs of one scenario do not share.
    """

    run_id: str
    scenario: ClusterScenario
    replicas: tuple[RunResult, ...]
    requests: pd.DataFrame
    provenance: Mapping[str, Any]
    has_index: bool

    @classmethod
    def of(
        cls,
        run_id: str,
        scenario: ClusterScenario,
        replicas: Sequence[RunResult],
        routed: Sequence[Routed],
        provenance: Mapping[str, Any],
        *,
        has_index: bool,
    ) -> ClusterResult:
        """Return the result of a run that has just ended."""
        requests = all_requests(replicas, routed)
        return cls(run_id, scenario, tuple(replicas), requests, provenance, has_index)

    def summary(self) -> dict[str, Any]:
        """Return the content of ``cluster.json`` but its list of files: JSON types only."""
        router = self.scenario.cluster.router
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "scenario": self.scenario.model_dump(mode="json"),
            "router": router_text(router),
            "num_replicas": len(self.replicas),
            "totals": totals(self.requests, self.replicas),
            "imbalance": imbalance(self.requests, self.replicas),
            "index": promises(self.requests) if self.has_index else None,
            "replicas": replica_rows(self.replicas),
        }

    def save(self, folder: Path | str) -> list[str]:
        """Write everything into ``folder``, at once, and return the files' names in it, sorted.

        ``folder`` is new, empty, or holds an older result, which is replaced. Equal results give
        equal bytes, ``provenance.json`` aside.

        Raises
        ------
        ConfigError
            The folder holds something else or cannot be written.
        """
        folder = Path(folder).resolve()
        check_destination(folder)
        try:
            with new_folder(folder) as temporary:
                return self._write(temporary)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError.one("out", str(folder), f"a folder to write to ({reason})") from None

    def _write(self, folder: Path) -> list[str]:
        for number, result in enumerate(self.replicas):
            result.save(folder / f"replica_{number}", figures=False)
        write_parquet(self.requests, folder / "requests.parquet")
        (folder / "scenario.yaml").write_text(scenario_yaml(self.scenario), encoding="utf-8")
        write_json(self.provenance, folder / "provenance.json")
        names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        files = sorted(names | {"cluster.json"})
        write_json({**self.summary(), "files": files}, folder / "cluster.json")
        return files


def all_requests(replicas: Sequence[RunResult], routed: Sequence[Routed]) -> pd.DataFrame:
    """Return the requests of all replicas as one table, in the order of submission."""
    import pandas as pd

    frames = [result.requests.assign(replica=n) for n, result in enumerate(replicas)]
    # A column without any value loses its type where tables are joined.
    joined = pd.concat(frames, ignore_index=True).astype(dict(frames[0].dtypes))
    places = _places(routed)
    keys = zip(joined["replica"], joined["request_id"], joined["arrival_ns"], strict=True)
    order = [places[key].popleft() for key in keys]
    joined["expected_tokens"] = [routed[place].expected_tokens for place in order]
    joined.index = pd.Index(order)
    return joined.sort_index().reset_index(drop=True)


def _places(routed: Sequence[Routed]) -> dict[tuple[int, str, int], deque[int]]:
    """Return where each request stands in the order of submission; an id may come again."""
    places: dict[tuple[int, str, int], deque[int]] = defaultdict(deque)
    for place, one in enumerate(routed):
        places[one.replica, one.request_id, one.arrival_ns].append(place)
    return places


def stored_summary(folder: Path | str) -> dict[str, Any] | None:
    """Return ``cluster.json`` of a folder with a whole result of this version, else None."""
    folder = Path(folder)
    try:
        summary: dict[str, Any] = json.loads((folder / "cluster.json").read_text(encoding="utf-8"))
        files = summary["files"] if summary["schema"] == SCHEMA else []
        is_whole = bool(files) and all((folder / name).is_file() for name in files)
        return summary if is_whole else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def check_destination(folder: Path | str) -> None:
    """Raise ConfigError unless a result may be written: to a new folder, an empty one, its own."""
    folder = Path(folder)
    if not folder.exists() and not folder.is_symlink():
        return
    own = ("cluster.json", "provenance.json", "scenario.yaml")
    if folder.is_dir() and (
        not any(folder.iterdir()) or all((folder / name).is_file() for name in own)
    ):
        return
    allowed = "a new or empty folder, or one that holds the result of a cluster"
    raise ConfigError.one("out", str(folder), allowed)
