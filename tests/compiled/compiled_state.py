"""The one place that looks into the arrays of the compiled engine: all of it is shown through the
Python manager that ``kv_cache_restore`` fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.core.block_pool_compiled import Pool
from sim.core.kv_cache_restore import prefix_cache_stats, restore
from sim.core.kv_cache_state_compiled import Manager, new_manager
from sim.request import Request, RequestStatus
from sim.request_records import RequestRecords
from tests.compiled.python_sides import REQUEST_FIELDS, inner, shown
from tests.differential.ours import OurManager, stats_of

# So small that a world of a few requests makes all of it grow.
SIZES = {"num_prefix_ids": 2, "num_requests": 1, "num_rows": 1, "num_entries": 2}
STATISTICS = ("requests", "queries", "hits")


def new_state(ours: OurManager) -> tuple[Manager, RequestRecords]:
    """Return the arrays of a manager that has served nothing yet, and its requests' records."""
    singles = ours.manager.coordinator.single_type_managers
    records = RequestRecords(singles, ours.world.policy == "priority")
    m = new_manager(ours.manager, **SIZES)
    return m._replace(pool=_with_short_list(m.pool)), records


def _with_short_list(pool: Pool) -> Pool:
    """Let the list of the free queue be full, and be packed, after as few blocks as may be."""
    before, after = len(pool.back), len(pool.front)
    columns = {name: a for name, a in pool._asdict().items() if len(a) == before}
    return pool._replace(**{name: a[:after].copy() for name, a in columns.items()})


def take_statistics(m: Manager) -> tuple[int, ...]:
    """Return the statistics of lookups and count from zero."""
    told = stats_of(prefix_cache_stats(m))
    for name in STATISTICS:
        m.lookup[name] = m.lookup[f"preempted_{name}"] = 0
    return told


def made_in_this_step(m: Manager) -> list[set[int]]:
    """Return the identities of each group whose states the step in the making computes."""
    step = m.lookup[0].step
    return [set(np.flatnonzero(row == step).tolist()) for row in m.made_at]


def hits(m: Manager) -> tuple[list[int], ...]:
    """Return the rows of the last lookup."""
    rows = []
    for row, first, count in zip(m.hits, m.hit_first, m.num_hits, strict=True):
        nulls = min(int(first), int(count))
        rows.append([0] * nulls + row[nulls:count].tolist())
    return tuple(rows)


def show(ours: OurManager, m: Manager, records: RequestRecords) -> tuple[Any, ...]:
    """Return the snapshot of a Python manager that is given the state, and what is inside."""
    names = {r: request.request_id for r, request in records.requests.items()}
    manager = restore(ours.manager, m, names, records.num_prefix_ids)
    manager.coordinator.num_uncached_common_prefix_tokens = int(
        m.lookup[0].num_uncached_common_prefix_tokens
    )
    return shown(ours), inner(manager, made_in_this_step(m))


class Record:
    """A request as a play sees it: what it reads and writes are fields of the compiled record."""

    def __init__(self, side: Any, r: int, request: Request):
        object.__setattr__(self, "_side", side)
        object.__setattr__(self, "r", r)
        object.__setattr__(self, "request_id", request.request_id)

    @property
    def row(self) -> Any:
        return self._side.m.requests[self.r]

    @property
    def status(self) -> RequestStatus:
        return RequestStatus(int(self.row.status))

    def __getattr__(self, name: str) -> int:
        return int(self.row[name])

    def __setattr__(self, name: str, value: int) -> None:
        self.row[name] = value

    def fields(self) -> tuple[Any, ...]:
        """Return what can be compared, in the order of ``REQUEST_FIELDS``."""
        row = self.row
        values = {name: int(row[name]) for name in REQUEST_FIELDS if name in row.dtype.names}
        values["is_prefill_chunk"] = bool(row.is_prefill_chunk)
        return self.status.name, *(values.get(name, 0) for name in REQUEST_FIELDS)
