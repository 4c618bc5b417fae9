"""What was found about a start-up log, for programs and for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sim.layout.from_log import Comparison, Explanation

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = 1
AGREES = "our layout agrees with the log"
DISAGREES = "our layout does not agree with the log"
NOTHING_FOUND = "none of the changes that were tried, nor any two of them, would make it agree"


def explanation_json(explanation: Explanation, name: str) -> dict[str, Any]:
    """Return the comparison as plain data; ``schema`` rises when a name changes."""
    found = explanation.comparison
    return {
        "schema": SCHEMA,
        "model": name,
        "agrees": found.agrees,
        "token_formula": found.trial.token_formula,
        "num_blocks": found.num_blocks,
        "blocks_in_memory": list(found.blocks_in_memory) if found.blocks_in_memory else None,
        "checks": [asdict(check) | {"agrees": check.agrees} for check in found.checks],
        "changes": [list(changes) for changes in explanation.changes],
    }


def explanation_renderables(explanation: Explanation, name: str) -> list[RenderableType]:
    """Return a table of logged values beside ours, and the verdict."""
    from rich.text import Text

    return [_table(explanation.comparison, name), Text("\n".join(_verdict(explanation)))]


def _table(found: Comparison, name: str) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{escape(name)}: the log and our layout")
    table.add_column("value")
    for header in ("log", "ours"):
        table.add_column(header, justify="right")
    table.add_column("")
    for check in found.checks:
        table.add_row(check.name, check.logged, check.ours, "" if check.agrees else "differs")
    return table


def _verdict(explanation: Explanation) -> list[str]:
    found = explanation.comparison
    lines = [f"{_blocks(found)}; token formula of releases {found.trial.token_formula}"]
    if found.agrees:
        return [*lines, AGREES]
    lines.append(DISAGREES)
    if not explanation.changes:
        return [*lines, NOTHING_FOUND]
    return [*lines, "it would with:", *(f"  {' and '.join(two)}" for two in explanation.changes)]


def _blocks(found: Comparison) -> str:
    if found.blocks_in_memory is None:
        return f"{found.num_blocks:,} blocks (the log does not give the memory)"
    low, high = found.blocks_in_memory
    span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{found.num_blocks:,} blocks; the logged memory holds {span}"
