"""A curve as a table: rows, files, and the folder that they are in."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sim.errors import ConfigError
from sim.result_folder import new_folder

SCHEMA = 1
DOCUMENT, TABLE = "curve.json", "curve.csv"
FIGURES = ("curve.svg", "curve.png")


@dataclass(frozen=True, slots=True)
class Point:
    """Hits at one capacity.

    series : ``chain`` or ``groups``
    capacity_bytes : None where a block has no size
    capacity_blocks : of the chain, or of the pool with its null block [blocks]
    hit_blocks : of the chain; None for groups, whose blocks are of several kinds [blocks]
    hit_tokens : prompt tokens found [tokens]; hit_ratio : their share of all prompt tokens
    hit_tokens_error : half the width of the 95 % interval of a sample; None: exact [tokens]
    num_not_served : requests that do not fit; their prompt tokens count as not found
    """

    series: str
    capacity_bytes: int | None
    capacity_blocks: int
    hit_blocks: int | None
    hit_tokens: int
    hit_ratio: float
    hit_blocks_error: float | None = None
    hit_tokens_error: float | None = None
    num_not_served: int = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one or two series, and what they were made of.

    settings : what was asked, plain values; totals : of the trace, plain values
    line : the chain at many more capacities, for the figure: (bytes or blocks, share)
    """

    settings: dict[str, Any]
    totals: dict[str, Any]
    points: tuple[Point, ...]
    line: tuple[tuple[float, float], ...] = ()

    def of(self, series: str) -> list[Point]:
        """Return the points of one series, the smallest capacity first."""
        return [point for point in self.points if point.series == series]

    def document(self) -> dict[str, Any]:
        """Return what ``curve.json`` holds."""
        points = [asdict(point) for point in self.points]
        parts = {"settings": self.settings, "totals": self.totals, "points": points}
        return {"schema": SCHEMA, **parts}


def check_destination(folder: Path) -> None:
    """Raise a ConfigError if a folder holds something else than a curve."""
    if not folder.exists():
        return
    known = {DOCUMENT, TABLE, *FIGURES}
    if not folder.is_dir() or any(path.name not in known for path in folder.iterdir()):
        raise ConfigError.one("--out", str(folder), "a new or empty folder, or that of a curve")


def save(curve: Curve, folder: Path, *, figure: bool = True) -> None:
    """Write document, table and figure; the folder appears, or changes, as a whole.

    Raises ConfigError if it holds something else than a curve.
    """
    check_destination(folder)
    with new_folder(folder.resolve()) as temporary:
        text = json.dumps(curve.document(), indent=2, ensure_ascii=False, allow_nan=False)
        (temporary / DOCUMENT).write_text(text + "\n", encoding="utf-8")
        _write_table(curve.points, temporary / TABLE)
        if figure:
            _draw(curve, temporary)


def _write_table(points: Sequence[Point], path: Path) -> None:
    names = [field.name for field in fields(Point)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(point, name) for name in names] for point in points)


def _draw(curve: Curve, folder: Path) -> None:
    from sim.plots import save_figure
    from sim.plots.curve import draw

    save_figure(lambda figure: draw(curve, figure), folder, "curve")
