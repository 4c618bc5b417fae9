"""``kvsim examples``: the original text's worked examples, printed, drawn and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles

if TYPE_CHECKING:
    from sim.examples import Example

EXIT_FAILED = 1
FOLDER = Path("examples")
SCHEMA = 1


def examples(
    name: Annotated[str, typer.Argument(metavar="NAME", help="allocation.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where figures go.  [default: examples/NAME]"),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw.", show_default=False)
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> int:
    """Work through the examples of the design text; 1 if a number is not the text's."""
    from sim.examples import EXAMPLES, save_figures

    worked = [example() for example in EXAMPLES[name]]
    files = save_figures(worked, out or FOLDER / name) if figures else []
    if as_json:
        consoles.show_json({"schema": SCHEMA, "examples": [_json(example) for example in worked]})
    else:
        consoles.show_text("\n".join("".join(f"{line}\n" for line in _lines(e)) for e in worked))
        consoles.show_text("".join(f"figure   {file}\n" for file in files))
    failures = [f"{e.name}: {c.what}" for e in worked for c in e.failures]
    for failure in failures:
        consoles.note(f"not as stated: {failure}")
    return EXIT_FAILED if failures else 0


def _lines(example: Example) -> list[str]:
    checks = [
        f"  {'ok' if c.holds else 'WRONG'}: {c.what}: {_short(c.computed)}"
        f"{'' if c.holds else f', stated {_short(c.stated)}'} ({c.source})"
        for c in example.checks
    ]
    return [example.title, *(f"  {line}" for line in example.lines), *checks]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _json(example: Example) -> dict[str, Any]:
    return {
        "name": example.name,
        "title": example.title,
        "data": example.data,
        "checks": [
            {
                "what": check.what,
                "stated": check.stated,
                "computed": check.computed,
                "source": check.source,
                "holds": check.holds,
            }
            for check in example.checks
        ],
    }
