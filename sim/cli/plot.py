"""``kvsim plot``: the figures of a result, drawn again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli import consoles
from sim.cli.runs import find_run


def plot(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a result, or its run id.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files go.  [default: RUN/figures]"),
    ] = None,
) -> None:
    """Draw the figures of a result as SVG and PNG; print the files' names."""
    from sim.plots import save_figures
    from sim.results import RunResult

    folder = find_run(run)
    for path in save_figures(RunResult.load(folder), out or folder / "figures"):
        consoles.show_text(f"{path}\n")
