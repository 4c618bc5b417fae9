"""Recorded decisions: a world, what was asked, what the reference answered and how it then looked.

``python -m tests.differential.golden`` records them anew from vLLM: a few dozen worlds that reach
every feature, and every world that ever failed (``failed.jsonl``, one world per line).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from tests.differential.closer import look_closer
from tests.differential.compare import is_nonsense
from tests.differential.coverage import FEATURES, count
from tests.differential.draw import SeedDraw
from tests.differential.manager_play import Record
from tests.differential.play import their_play
from tests.differential.random_worlds import LEVELS
from tests.differential.world import World

FOLDER = Path(__file__).parents[1] / "golden" / "decisions"
FAILED = FOLDER / "failed.jsonl"
MAX_OPS, MANY = 60, 8
DIGITS = 4  # hexadecimal, of each field of a snapshot


def plain(value: Any) -> Any:
    """Return JSON for an answer or a field: tuples as lists, dicts by numbers as sorted pairs."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return sorted([plain(key), plain(item)] for key, item in value.items())
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def digest(value: Any) -> str:
    """Return a few digits that follow from a field; the order of a dict does not matter."""
    text = json.dumps(plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def written(record: Record) -> list[Any]:
    """Return a record as it is kept: [asked, answer, digits of each field that can be seen].

    Of an error only that there was one: each side has its own words.
    """
    if record.seen is None:
        return [plain(record.asked), "error", ""]
    return [plain(record.asked), plain(record.answer), "".join(map(digest, record.seen))]


# -- recording -----------------------------------------------------------------------------------
def chosen(level: str, num_seeds: int) -> Iterator[tuple[str, World, list[Record]]]:
    """Choose worlds of small seeds: each reaches what fewer than two earlier ones did."""
    reached: Counter[str] = Counter()
    for seed in range(num_seeds):
        world = LEVELS[level](SeedDraw(seed))
        if len(world.ops) > MAX_OPS:
            continue
        records = decided(world)
        found: Counter[str] = Counter()
        count(world, records, found)
        look_closer(world, records, found)
        new = [feature for feature in FEATURES if found[feature] and reached[feature] < 2]
        if len(new) > MANY or any(not reached[feature] for feature in new):
            reached.update(set(found))
            yield f"{level} {seed}", world, records


def decided(world: World) -> list[Record]:
    """Return what the reference decides, up to where it makes no sense."""
    return [r for r in their_play(world).records() if not is_nonsense(r)]


def lines(name: str, world: World, records: list[Record]) -> str:
    """Return one world as lines of JSON: its name, itself, then one line per call."""
    rows = [json.dumps({"name": name}), world.dumps()]
    rows += [json.dumps(written(r), separators=(",", ":"), sort_keys=True) for r in records]
    return "\n".join(rows) + "\n"


def record(num_seeds: int) -> None:
    """Write all files anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for level in ("manager", "scheduler"):
        parts = [lines(*choice) for choice in chosen(level, num_seeds)]
        (FOLDER / f"{level}.jsonl").write_text("\n".join(parts))
        print(f"{level}: {len(parts)} worlds")
    texts = FAILED.read_text().splitlines() if FAILED.exists() else []
    worlds = [World.loads(text) for text in texts]
    parts = [lines(f"failed once: {i}", world, decided(world)) for i, world in enumerate(worlds)]
    (FOLDER / "failed_decisions.jsonl").write_text("\n".join(parts))


# -- reading -------------------------------------------------------------------------------------
def recorded() -> Iterator[tuple[str, World, list[list[Any]]]]:
    """Return (name, world, kept records) of all files."""
    for path in sorted(FOLDER.glob("*.jsonl")):
        if path == FAILED:
            continue
        for part in filter(None, path.read_text().split("\n\n")):
            name, world, *rows = part.strip().split("\n")
            yield json.loads(name)["name"], World.loads(world), [json.loads(r) for r in rows]


if __name__ == "__main__":
    record(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
