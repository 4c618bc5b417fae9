"""A curve as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.curve.result import Curve, Point
from sim.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType


def curve_renderables(curve: Curve) -> list[RenderableType]:
    """Return the table of a curve, and what it is a curve of."""
    from rich.text import Text

    table = _with_groups(curve) if curve.of("groups") else _chain_alone(curve)
    return [table, *(Text(line) for line in _sentences(curve))]


def _chain_alone(curve: Curve) -> RenderableType:
    points, size = curve.of("chain"), curve.settings["block_size"]
    headers = ["blocks", "in tokens", "hit blocks", "hit tokens", "of prompt tokens"]
    is_estimate = any(point.hit_tokens_error is not None for point in points)
    rows = [
        [
            f"{point.capacity_blocks:,}",
            f"{point.capacity_blocks * size:,}",
            f"{point.hit_blocks:,}",
            f"{point.hit_tokens:,}",
            _share(point.hit_ratio),
            *([_error(curve, point)] if is_estimate else []),
        ]
        for point in points
    ]
    return _table("Hits against capacity, one chain", [*headers, *["95 %"] * is_estimate], rows)


def _error(curve: Curve, point: Point) -> str:
    total = curve.totals["num_prompt_tokens"] or 1
    return f"± {100 * (point.hit_tokens_error or 0) / total:.2f} %"


def _with_groups(curve: Curve) -> RenderableType:
    groups, chain = curve.of("groups"), curve.of("chain")
    count = curve.settings["num_groups"]
    headers = [
        "KV memory",
        "pool blocks",
        f"hit tokens, {count} group{'s' if count > 1 else ''}",
        "share",
        "one chain",
        "share",
        "not served",
    ]
    rows = [
        [
            format_bytes(own.capacity_bytes or 0),
            f"{own.capacity_blocks:,}",
            f"{own.hit_tokens:,}",
            _share(own.hit_ratio),
            f"{other.hit_tokens:,}",
            _share(other.hit_ratio),
            f"{own.num_not_served:,}",
        ]
        for own, other in zip(groups, chain, strict=True)
    ]
    return _table(f"Hits against KV memory, {curve.settings['model']}", headers, rows)


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table

    table = Table(title=title)
    for header in headers:
        table.add_column(header, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _sentences(curve: Curve) -> list[str]:
    totals, settings = curve.totals, curve.settings
    about = "about " if settings["sample_ratio"] else ""
    lines = [
        f"{totals['num_requests']:,} requests, {totals['num_prompt_tokens']:,} prompt tokens, "
        f"{totals['num_lookups']:,} blocks of {settings['block_size']:,} looked up, "
        f"{about}{totals['num_distinct']:,} distinct"
    ]
    if settings["sample_ratio"]:
        lines.append(
            f"estimated from {settings['sample_ratio']:.4g} of the blocks (seed "
            f"{settings['seed']}), with 95 % intervals"
        )
    return lines


def _share(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"
