"""What the reasons of a run are kept in: one row per lookup, one per stretch of lost tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.reasons.analysis import Lookup
from sim.reasons.stretches import NO_GROUP, Stretch
from sim.tables import LOOKUP_COLUMNS, REASON_COLUMNS, alone_columns, typed_frame

if TYPE_CHECKING:
    import pandas as pd


class ReasonTables:
    """Append-only rows of the tables ``lookups`` and ``reasons`` (columns: ``sim.tables``)."""

    def __init__(self, num_groups: int):
        self.num_groups = num_groups
        self._lookups: list[tuple[Any, ...]] = []
        self._reasons: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        """Return the number of lookups."""
        return len(self._lookups)

    def add(self, lookup: Lookup, attempts: int, is_admitted: bool) -> None:
        """Append a lookup, the last of ``attempts``, and its stretches."""
        number = len(self._lookups)
        self._lookups.append(
            (
                number,
                lookup.request.request_id,
                lookup.step,
                lookup.now_ns,
                attempts,
                int(is_admitted),
                lookup.num_preemptions,
                lookup.num_tokens,
                lookup.hit,
                lookup.num_taken,
                " ".join(f"g{c.group_id}:{c.before}>{c.after}" for c in lookup.cuts) or None,
                *lookup.alone,
            )
        )
        self._reasons += [_row(number, lookup, stretch) for stretch in lookup.stretches]

    def lookups(self) -> pd.DataFrame:
        """Return one row per lookup."""
        kinds = {**LOOKUP_COLUMNS, **dict.fromkeys(alone_columns(self.num_groups), "int64")}
        return typed_frame(self._lookups, kinds)

    def reasons(self) -> pd.DataFrame:
        """Return one row per stretch of lost tokens and group."""
        return typed_frame(self._reasons, REASON_COLUMNS)


def _row(number: int, lookup: Lookup, stretch: Stretch) -> tuple[Any, ...]:
    reason, event, stored = stretch.reason, stretch.event, stretch.stored
    return (
        number,
        stretch.group_id,
        reason.cause,
        stretch.first,
        stretch.end,
        stretch.end - stretch.first,
        int(reason.decides),
        stretch.blocks,
        reason.by_group if reason.by_group != NO_GROUP else None,
        reason.by_cause,
        event.request_id if event else None,
        " ".join(map(str, stretch.event_groups)) or None,
        event.now_ns if event else None,
        event.step if event else None,
        stored.request_id if stored else None,
        stored.now_ns if stored else None,
        stored.step if stored else None,
        lookup.num_taken - stored.num_taken if stored else None,
    )
