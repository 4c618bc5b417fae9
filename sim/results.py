"""RunResult: what a run leaves behind, in memory and on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sim.config import Scenario, validated
from sim.errors import ConfigError
from sim.metrics import compute_metrics
from sim.metrics.memory import fullest, mean_bytes
from sim.metrics.metric import Value
from sim.metrics.run_tables import RunTables
from sim.reasons.summary import summarise
from sim.result_folder import new_folder
from sim.scenario_file import parse_yaml, read_text, scenario_yaml
from sim.tables import (
    LOOKUP_COLUMNS,
    OUTCOMES,
    PARTS,
    REASON_COLUMNS,
    REQUEST_COLUMNS,
    ROW_GROUP_ROWS,
    STEP_COLUMNS,
    WASTE_COLUMNS,
    open_table,
    read_parquet,
    write_parquet,
)

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
"""Of ``summary.json``; rises when a name in it changes."""
SEMANTICS_VERSION = 2
"""Rises with every changelog line marked "numbers change"."""

FIGURE_REQUESTS = ROW_GROUP_ROWS
"""Most requests in a figure; of more, every k-th in the order of arrival is drawn."""

_RECORDED = {"lookups": LOOKUP_COLUMNS, "reasons": REASON_COLUMNS}
"""Tables that only runs with ``engine.reasons`` have."""

_COUNTERS = (
    "num_blocks",
    "kv_memory_bytes",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)


_ATTACHED = ("kv_events.jsonl", "kv_events.msgpack")


class Attachment(Protocol):
    """A file that a run leaves beside its tables."""

    def save(self, path: Path) -> None:
        """Write it to ``path``."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """An attachment of a result that was read from a folder."""

    source: Path

    def save(self, path: Path) -> None:
        """Copy it."""
        shutil.copyfile(self.source, path)


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run: its resolved scenario, its tables and what was computed from them.

    layout is the content of ``layout.json``, log_lines what vLLM would have logged about the cache;
    provenance is the only part that two runs of one scenario do not share. block_residency is what
    ``cache.kv_cache_metrics`` asked for; attachments are further files, by name.
    """

    run_id: str
    scenario: Scenario
    tables: RunTables
    metrics: Mapping[str, Value]
    layout: Mapping[str, Any]
    log_lines: tuple[str, ...]
    provenance: Mapping[str, Any]
    block_residency: Mapping[str, Any] | None = None
    attachments: Mapping[str, Attachment] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        tables: RunTables,
        layout: Mapping[str, Any],
        log_lines: Sequence[str],
        provenance: Mapping[str, Any],
        **recorded: Any,
    ) -> RunResult:
        """Return the result of a run that has just ended, its metrics computed."""
        identity = run_id(scenario, provenance.get("files", {}))
        metrics = compute_metrics(tables)
        lines = tuple(log_lines)
        return cls(identity, scenario, tables, metrics, layout, lines, provenance, **recorded)

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request that ended; if they are many, read from the file each time."""
        return self.tables.requests

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step that did something; if they are many, read from the file each time."""
        return self.tables.steps

    @property
    def waste(self) -> pd.DataFrame:
        """One row per sampled step: the bytes of each part of the KV memory."""
        return self.tables.waste

    def for_figures(self) -> RunResult:
        """Return the result as figures show it: at most ``FIGURE_REQUESTS`` of its requests."""
        return replace(self, tables=self.tables.thinned(FIGURE_REQUESTS))

    @property
    def reasons(self) -> dict[str, Any] | None:
        """Where the prompt tokens went, if the run recorded it (``sim.reasons.summary``)."""
        if self.tables.lookups is None or self.tables.reasons is None:
            return None
        return summarise(self.tables.lookups, self.tables.reasons)

    def summary(self) -> dict[str, Any]:
        """Return the content of ``summary.json`` but its list of files: JSON types only."""
        reasons = self.reasons
        return {
            **({"reasons": reasons} if reasons is not None else {}),
            "schema": SCHEMA,
            "run_id": self.run_id,
            "scenario": self.scenario.model_dump(mode="json"),
            "requests": {
                name: self.metrics[f"requests_{name}"] for name in ("submitted", *OUTCOMES)
            },
            "time_s": self.metrics["span_s"],
            "metrics": dict(self.metrics),
            "waste": {
                "mean_bytes": {part: mean_bytes(self.tables, part) for part in PARTS},
                "fullest_bytes": fullest(self.tables),
                "num_samples": len(self.waste),
            },
            "counters": {name: getattr(self.tables, name) for name in _COUNTERS},
            "log_lines": list(self.log_lines),
            **({"kv_cache_metrics": self.block_residency} if self.block_residency else {}),
        }

    def save(self, folder: Path | str, *, figures: bool = True) -> list[str]:
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
                return self._write(temporary, figures)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError.one("out", str(folder), f"a folder to write to ({reason})") from None

    def _write(self, folder: Path, figures: bool) -> list[str]:
        self.tables.request_table.write(folder / "requests.parquet")
        self.tables.step_table.write(folder / "steps.parquet")
        write_parquet(self.waste, folder / "waste.parquet")
        for name in _RECORDED:
            if (table := getattr(self.tables, name)) is not None:
                write_parquet(table, folder / f"{name}.parquet")
        (folder / "scenario.yaml").write_text(scenario_yaml(self.scenario), encoding="utf-8")
        write_json(self.layout, folder / "layout.json")
        write_json(self.provenance, folder / "provenance.json")
        for name, attachment in self.attachments.items():
            attachment.save(folder / name)
        if figures:
            from sim.plots import draw_figures

            draw_figures(self.for_figures(), folder / "figures")
        names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        files = sorted(names | {"summary.json"})
        write_json({**self.summary(), "files": files}, folder / "summary.json")
        return files

    def add_figures(self, folder: Path | str) -> bool:
        """Draw the figures into ``folder``, which holds this result; False if they are there.

        The folder is then the one that ``save`` with figures would have written. A kill leaves a
        complete result, with all figures or with none that it names.
        """
        from sim.plots import figure_files, save_figures

        folder = Path(folder).resolve()
        summary = _read_json(folder / "summary.json")
        names = {f"figures/{name}" for name in figure_files()}
        if names <= set(summary["files"]):
            return False
        save_figures(self.for_figures(), folder / "figures")
        new = folder / f".summary.json.{os.getpid()}"
        write_json({**summary, "files": sorted({*summary["files"], *names})}, new)
        new.replace(folder / "summary.json")
        return True

    @classmethod
    def load(cls, folder: Path | str) -> RunResult:
        """Return the result that ``save`` wrote. Raises ConfigError if it is missing or torn."""
        folder = Path(folder)
        if not is_complete(folder):
            raise ConfigError.one("result", str(folder), "a folder with a complete result")
        try:
            return cls._read(folder)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"a result as this version writes it ({type(error).__name__}: {error})"
            raise ConfigError.one("result", str(folder), reason) from None

    @classmethod
    def _read(cls, folder: Path) -> RunResult:
        summary = _read_json(folder / "summary.json")
        text = read_text(folder / "scenario.yaml")
        tables = RunTables(
            request_table=open_table(folder / "requests.parquet", REQUEST_COLUMNS),
            step_table=open_table(folder / "steps.parquet", dict.fromkeys(STEP_COLUMNS, "int64")),
            waste=read_parquet(folder / "waste.parquet", dict.fromkeys(WASTE_COLUMNS, "int64")),
            **{
                name: read_parquet(folder / f"{name}.parquet", kinds)
                for name, kinds in _RECORDED.items()
                if f"{name}.parquet" in summary["files"]
            },
            **{name: summary["counters"][name] for name in _COUNTERS},
        )
        return cls(
            run_id=summary["run_id"],
            scenario=validated(Scenario, parse_yaml(text, str(folder / "scenario.yaml"))),
            tables=tables,
            metrics=summary["metrics"],
            layout=_read_json(folder / "layout.json"),
            log_lines=tuple(summary["log_lines"]),
            provenance=_read_json(folder / "provenance.json"),
            block_residency=summary.get("kv_cache_metrics"),
            attachments={n: _Stored(folder / n) for n in summary["files"] if n in _ATTACHED},
        )


def run_id(scenario: Scenario, file_digests: Mapping[str, str]) -> str:
    """Return 12 hex digits that name a resolved scenario, its input files and our semantics."""
    content = {
        "files": dict(file_digests),
        "scenario": scenario.model_dump(mode="json"),
        "semantics": SEMANTICS_VERSION,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_complete(folder: Path | str) -> bool:
    """Return whether a folder holds a whole result that this version can read."""
    try:
        summary = _read_json(Path(folder) / "summary.json")
        files = summary["files"] if summary["schema"] == SCHEMA else []
        return bool(files) and all((Path(folder) / name).is_file() for name in files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def check_destination(folder: Path | str) -> None:
    """Raise ConfigError unless a result may be written to ``folder``: new, empty or a result."""
    folder = Path(folder)
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and (not any(folder.iterdir()) or _is_result(folder)):
        return
    raise ConfigError.one("out", str(folder), "a new or empty folder, or one that holds a result")


def _is_result(folder: Path) -> bool:
    return all((folder / n).is_file() for n in ("summary.json", "provenance.json", "scenario.yaml"))


def write_json(data: Any, path: Path) -> None:
    """Write JSON with sorted keys and a final newline; a number that is not finite raises."""
    text = json.dumps(data, sort_keys=True, indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
