"""``kvsim export``: the tables of a result in a form that any program reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli import consoles
from sim.cli.runs import find_run
from sim.errors import ConfigError

if TYPE_CHECKING:
    from sim.tables import Table

FORMATS = ("csv",)


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a result, or its run id.")],
    format_name: Annotated[str, typer.Option("--format", metavar="csv", help="Format.")] = "csv",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files go.  [default: RUN/csv]"),
    ] = None,
) -> None:
    """Write the tables of a result as CSV; print the files' names."""
    if format_name not in FORMATS:
        raise ConfigError.unknown("--format", format_name, FORMATS)
    folder = find_run(run)
    for path in export_csv(folder, out or folder / "csv"):
        consoles.show_text(f"{path}\n")


def export_csv(folder: Path, target: Path) -> list[Path]:
    """Write the tables of the result in ``folder`` into ``target``, and return the files.

    Each gets its name when all are written: an interrupted export leaves none.
    """
    from sim.results import RunResult

    tables = RunResult.load(folder).tables.by_name()
    tables = {name: table for name, table in tables.items() if table is not None}
    target.mkdir(parents=True, exist_ok=True)
    files = [target / f"{name}.csv" for name in tables]
    temporary = [path.with_name(f".{path.name}.{os.getpid()}") for path in files]
    try:
        for table, path in zip(tables.values(), temporary, strict=True):
            _write(table, path)
        for path, file in zip(temporary, files, strict=True):
            path.replace(file)
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)
    return files


def _write(table: Table, path: Path) -> None:
    """Write one row group after the other, so that a long table is never in memory."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for idx, frame in enumerate(table.frames()):
            frame.to_csv(file, index=False, header=idx == 0, lineterminator="\n")
