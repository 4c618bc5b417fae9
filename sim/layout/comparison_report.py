"""A comparison for programs (JSON) and for people (a table)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sim.layout.comparison import Comparison, Figures, Row
from sim.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = 1
BASE = "vllm"
"""The rule against which tokens are compared."""

HEADERS = (
    "groups",
    "group size",
    "padding slots",
    "weighted idle",
    "vLLM's log",
    "page padding",
    "tokens",
    "against vllm",
    "concurrency",
    "host ms/step",
)


def comparison_json(comparisons: Iterable[Comparison]) -> dict[str, Any]:
    """Return comparisons as plain data; shares are numbers from 0 to 1, sizes bytes.

    ``schema`` rises when a name changes.
    """
    return {"schema": SCHEMA, "models": [_model(one) for one in comparisons]}


def _model(comparison: Comparison) -> dict[str, Any]:
    return {
        "model": comparison.model,
        "settings": asdict(comparison.settings),
        "lengths": [list(pair) for pair in comparison.lengths.pairs],
        "rows": [_row(row) for row in comparison.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": row.name, "is_plan": row.is_plan, "refusal": row.refusal}
    if row.figures is None:
        return shown
    exact = asdict(row.figures)
    for name in ("idle_bytes", "idle_share", "page_padding_share"):
        exact[name] = float(exact[name])
    return shown | exact


def cells(figures: Figures, base_tokens: int | None) -> list[str]:
    """Return the texts of a row under ``HEADERS``."""
    gain = "" if not base_tokens else f"{figures.tokens / base_tokens - 1:+.1%}"
    return [
        f"{figures.num_groups}",
        f"{figures.group_size}",
        f"{figures.missing_layers}",
        f"{float(figures.idle_share):.2%}",
        ", ".join(f"{percent:.2f}%" for percent in figures.logged_percents),
        f"{float(figures.page_padding_share):.2%}",
        f"{figures.tokens:,}",
        gain,
        f"{figures.concurrency:.2f}x",
        f"{figures.host_us_per_step / 1000:.1f}",
    ]


def base_tokens(comparison: Comparison) -> int | None:
    """Return the tokens of the engine's own rule, None if it is not there or refuses."""
    found = (row.figures for row in comparison.rows if row.name == BASE)
    figures = next(found, None)
    return figures.tokens if figures else None


def comparison_renderables(comparison: Comparison) -> list[RenderableType]:
    """Return all rows, where the memory is in the steady state, and what was refused and why."""
    return [_table(comparison), _parts_table(comparison), _refusals(comparison)]


def _table(comparison: Comparison) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    length = f"{comparison.settings.max_model_len:,}"
    title = (
        f"{escape(comparison.model)}: grouping rules and memory plans; requests of "
        f"{comparison.lengths} tokens, the longest {length}"
    )
    table = Table(title=title)
    table.add_column("rule or plan", no_wrap=True)
    for header in HEADERS:
        table.add_column(header, justify="right")
    base = base_tokens(comparison)
    for row, following in zip(comparison.rows, [*comparison.rows[1:], None], strict=True):
        ends = following is not None and row.is_plan != following.is_plan
        table.add_row(*_texts(row, base), end_section=ends)
    return table


def _texts(row: Row, base: int | None) -> Sequence[str]:
    from rich.markup import escape

    if row.figures is None:
        return [escape(row.name), "refused"]
    return [escape(row.name), *cells(row.figures, base)]


def _refusals(comparison: Comparison) -> RenderableType:
    """One line for each reason, in the words of whoever refuses."""
    from rich.text import Text

    reasons: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.refusal is not None:
            reasons.setdefault(row.refusal, []).append(row.name)
    return Text("\n".join(f"{', '.join(names)}: refused: {why}" for why, names in reasons.items()))


_SHOWN = ("live", "tail", "out_of_window", "layer_padding", "page_padding", "free", "remainder")


def _parts_table(comparison: Comparison) -> RenderableType:
    """Where the memory is; parts that are rarely more than a trace are one column."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="The memory with as many such requests as fit, each at its last token")
    table.add_column("rule or plan", no_wrap=True)
    table.add_column("requests", justify="right")
    for header in (*_SHOWN, "other", "recurrent floor"):
        table.add_column(header.replace("_", " "), justify="right")
    for row in comparison.rows:
        if row.figures is not None:
            table.add_row(escape(row.name), *_part_texts(row.figures))
    return table


def _part_texts(figures: Figures) -> Iterable[str]:
    total = sum(figures.parts.values())
    yield f"{figures.requests}"
    for name in _SHOWN:
        yield f"{figures.parts[name] / total:.2%}"
    yield f"{sum(n for name, n in figures.parts.items() if name not in _SHOWN) / total:.2%}"
    yield format_bytes(figures.recurrent_floor_bytes)
