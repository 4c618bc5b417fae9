"""Whether two results of one scenario are the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.results import RunResult

_TABLES = ("requests", "steps", "waste")


def differences(stored: RunResult, new: RunResult) -> list[str]:
    """Return one line for each part in which two results differ; none means the same values.

    Provenance is left out: it names versions and the time that a run took.
    """
    lines = [line for name in _TABLES for line in _table(name, stored, new)]
    before, after = _plain(stored.summary()), _plain(new.summary())
    lines += [f"summary.{key}" for key in before if before[key] != after.get(key)]
    if _plain(stored.layout) != _plain(new.layout):
        lines.append("layout")
    return lines


def _table(name: str, stored: RunResult, new: RunResult) -> list[str]:
    before, after = getattr(stored, name), getattr(new, name)
    if list(before.columns) != list(after.columns):
        return [f"{name}: other columns"]
    if len(before) != len(after):
        return [f"{name}: {len(before)} rows, now {len(after)}"]
    return [f"{name}.{column}" for column in before if not before[column].equals(after[column])]


def _plain(data: Any) -> Any:
    """The data as a JSON file would give it back."""
    return json.loads(json.dumps(data))
