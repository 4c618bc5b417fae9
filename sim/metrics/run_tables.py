"""What the metrics of a run are computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sim.tables import REQUEST_COLUMNS, MemoryTable, Table

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class RunTables:
    """The tables of one run (columns: ``sim.tables``) and what they do not hold.

    The tables of requests and steps may be in files: metrics read them a row group at a time, and
    ``requests`` and ``steps`` load them. num_blocks counts the null block; kv_memory_bytes is all
    KV memory. prefix_cache_queries and prefix_cache_hits are vLLM's counters [tokens]: every lookup
    of a request that was not preempted, also repeated ones (spec/manager.md 5.5).
    spec_decode_num_drafts counts verified requests, the other two their drafts and the accepted
    ones. lookups and reasons are there if the run recorded them.
    """

    request_table: Table
    step_table: Table
    waste: pd.DataFrame
    num_blocks: int
    kv_memory_bytes: int
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    spec_decode_num_drafts: int = 0
    spec_decode_num_draft_tokens: int = 0
    spec_decode_num_accepted_tokens: int = 0
    lookups: pd.DataFrame | None = None
    reasons: pd.DataFrame | None = None
    _computed: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_frames(
        cls, requests: pd.DataFrame, steps: pd.DataFrame, waste: pd.DataFrame, **others: Any
    ) -> RunTables:
        """Return the tables of frames in memory."""
        request_table = MemoryTable.of(requests, REQUEST_COLUMNS)
        return cls(request_table, MemoryTable.of(steps), waste, **others)

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request that ended. A table in a file is read anew each time."""
        return self.request_table.frame()

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step that did something. A table in a file is read anew each time."""
        return self.step_table.frame()

    def by_name(self) -> dict[str, Table | None]:
        """Return all tables by the names of their files; None is one that was not recorded."""
        frames = {"waste": self.waste, "lookups": self.lookups, "reasons": self.reasons}
        return {
            "requests": self.request_table,
            "steps": self.step_table,
            **{n: None if frame is None else MemoryTable.of(frame) for n, frame in frames.items()},
        }

    def once(self, compute: Callable[[RunTables], T]) -> T:
        """Return ``compute(self)``, computed at the first call: many metrics share one pass."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        result: T = self._computed[compute]
        return result

    def thinned(self, most: int) -> RunTables:
        """Return tables with at most ``most`` requests: every k-th by arrival, k the smallest."""
        stride = max(1, -(-self.request_table.num_rows // most))
        return (
            self if stride == 1 else replace(self, request_table=self.request_table.every(stride))
        )
