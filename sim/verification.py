"""Whether two results of one scenario are the same."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.results import RunResult
    from sim.tables import Table


def differences(stored: RunResult, new: RunResult) -> list[str]:
    """Return one line for each part in which two results differ; none means the same values.

    Provenance is left out: it names versions and the time that a run took.
    """
    tables = zip(stored.tables.by_name().items(), new.tables.by_name().values(), strict=True)
    lines = [line for (name, old), again in tables for line in _table(name, old, again)]
    before, after = _plain(stored.summary()), _plain(new.summary())
    lines += [f"summary.{key}" for key in before if before[key] != after.get(key)]
    if _plain(stored.layout) != _plain(new.layout):
        lines.append("layout")
    return lines + _files(stored, new)


def _files(stored: RunResult, new: RunResult) -> list[str]:
    """Name the further files, such as those of KV events, that differ."""
    if set(stored.attachments) != set(new.attachments):
        return ["files: others"]
    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "before", Path(folder) / "after"
        return [
            n for n in sorted(stored.attachments) if not _is_same(stored, new, n, before, after)
        ]


def _is_same(stored: RunResult, new: RunResult, name: str, before: Path, after: Path) -> bool:
    stored.attachments[name].save(before)
    new.attachments[name].save(after)
    return filecmp.cmp(before, after, shallow=False)


def _table(name: str, before: Table | None, after: Table | None) -> list[str]:
    if before is None or after is None:
        return [] if before is after else [f"{name}: not recorded in one of the runs"]
    if list(before.kinds) != list(after.kinds):
        return [f"{name}: other columns"]
    if before.num_rows != after.num_rows:
        return [f"{name}: {before.num_rows} rows, now {after.num_rows}"]
    return [f"{name}.{column}" for column in before.differing_columns(after)]


def _plain(data: Any) -> Any:
    """The data as a JSON file would give it back."""
    return json.loads(json.dumps(data))
