"""``kvsim plot``: the figures of a result, drawn again, and those that compare groupings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.groupings import Lengths, Only, Question
from sim.cli.options import LAYOUT_OPTIONS, with_options
from sim.cli.runs import find_run
from sim.errors import ConfigError


@with_options(LAYOUT_OPTIONS)
def plot(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|padding|pareto",
            help="Folder of a result, or its run id; or a figure that compares groupings.",
        ),
    ],
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL...]", help="Models of padding; the model of pareto."),
    ] = None,
    lengths: Lengths = None,
    only: Only = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files go.  [default: RUN/figures, or here]"),
    ] = None,
    **flags: Any,
) -> int:
    """Draw figures as SVG and PNG: of a result, or of groupings; print the files' names.

    `kvsim plot padding MODEL...` draws padding by rule, `kvsim plot pareto MODEL` idle bytes
    against groups. The layout options, --lengths and --only are for these two.
    """
    asked = Question(flags, lengths, only or ())
    if run in _DRAWN:
        files = _DRAWN[run](models or [], asked, out or Path())
    else:
        _check_alone(run, [*(models or []), *asked.given])
        files = _result_figures(run, out)
    for path in files:
        consoles.show_text(f"{path}\n")
    return 0


def _check_alone(run: str, extra: list[str]) -> None:
    """A result's figures take no models and no settings: they are the result's."""
    if extra:
        text = f"nothing with the result {run}; only with {' and '.join(_DRAWN)}"
        raise ConfigError.one("kvsim plot", extra[0], text)


def _result_figures(run: str, out: Path | None) -> list[Path]:
    from sim.plots import save_figures
    from sim.results import RunResult

    folder = find_run(run)
    return save_figures(RunResult.load(folder).for_figures(), out or folder / "figures")


def _padding(models: list[str], asked: Question, out: Path) -> list[Path]:
    from sim.plots import padding, save_figure

    if not models:
        raise ConfigError.one("MODEL", "missing", "one model or several")
    names = asked.only or padding.RULES
    compared = [asked.compare(model, names) for model in models]
    size = padding.size_inches(compared)
    return save_figure(lambda figure: padding.draw(compared, figure), out, "padding", size)


def _pareto(models: list[str], asked: Question, out: Path) -> list[Path]:
    from sim.layout.grouping import GROUPING_HEURISTICS
    from sim.plots import pareto, save_figure

    if len(models) != 1:
        raise ConfigError.one("MODEL", f"{len(models)} models", "one model")
    sizes = asked.compare(models[0], [f"fixed:size={n}" for n in range(1, pareto.LARGEST + 1)])
    rules = asked.compare(models[0], asked.only or list(GROUPING_HEURISTICS))
    size = pareto.SIZE_INCHES
    return save_figure(lambda figure: pareto.draw(sizes, rules, figure), out, "pareto", size)


_DRAWN = {"padding": _padding, "pareto": _pareto}
