"""Rows of requests that ended, brought into the order of their arrival."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InvariantError
from sim.tables.arrow import ROW_GROUP_ROWS
from sim.tables.columns import REQUEST_COLUMNS
from sim.tables.spool import Spool
from sim.tables.table import MemoryTable, Table

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_COLUMNS = tuple(name for name, kind in REQUEST_COLUMNS.items() if kind == "string")
INTEGER_COLUMNS = tuple(name for name, kind in REQUEST_COLUMNS.items() if kind != "string")
_OPTIONAL = frozenset(name for name, kind in REQUEST_COLUMNS.items() if kind == "Int64")
_ARRIVAL = INTEGER_COLUMNS.index("arrival_ns")
_NEVER = 1 << 62


class RequestRows:
    """The request table while it grows: ordered by arrival, those of one instant by their end.

    Requests end in another order than they arrive. A row may leave for the file when no request
    that is still to end comes before it: when none arrived earlier, for those that arrived with it
    end later. So what is in memory are the rows of the requests that arrived since the oldest one
    that has not ended, and up to two row groups.

    The arrivals must be told (``added``), in order. If none was, all rows stay in memory.

    Invariants: rows in the file are those of the earliest arrivals, in order.
    Cost: about 120 bytes per row in memory, 250 while it is new; O(1) per request, a sort per row
    group.
    Source: ours.
    """

    def __init__(self, row_group_rows: int = ROW_GROUP_ROWS):
        self._row_group_rows = row_group_rows
        self._live: dict[int, int] = {}  # arrival -> requests that have not ended, in order
        self._are_arrivals_told = False
        self._numbers: array[int] = array("q")
        self._texts: list[str | None] = []  # of one row after the other, as in _numbers
        self._held: list[pa.Table] = []  # older rows, a stretch after the other
        self._num_texts = row_group_rows * len(TEXT_COLUMNS)  # new ones at which to look again
        self._last_written_ns = -1
        self._spool: Spool | None = None
        self._finished: Table | None = None

    def __len__(self) -> int:
        """Return the number of rows in memory."""
        num_held = sum(data.num_rows for data in self._held)
        return num_held + len(self._texts) // len(TEXT_COLUMNS)

    def added(self, arrival_ns: int) -> None:
        """Note that a request arrived; it will end."""
        self._are_arrivals_told = True
        self._live[arrival_ns] = self._live.get(arrival_ns, 0) + 1

    def ended(self, numbers: tuple[int, ...], texts: Sequence[str | None]) -> None:
        """Append the row of a request that ended.

        Parameters
        ----------
        numbers : in the order of ``INTEGER_COLUMNS``; -1 where a moment or count never came
        texts : in the order of ``TEXT_COLUMNS``
        """
        self._numbers.extend(numbers)
        self._texts.extend(texts)
        if self._are_arrivals_told:
            arrival_ns = numbers[_ARRIVAL]
            num_left = self._live.get(arrival_ns, 0) - 1
            if num_left == 0:
                del self._live[arrival_ns]
            elif num_left > 0:
                self._live[arrival_ns] = num_left  # where it was in the order
            else:
                raise InvariantError(f"a request ended, of {arrival_ns} ns no such arrival is told")
            if len(self._texts) >= self._num_texts:
                self._write_what_is_in_order()

    def finish(self) -> Table:
        """Return the table of all requests that ended so far.

        Nothing may follow if some of them are in a file (InvariantError).
        """
        if self._finished is not None:
            return self._finished
        data = _sorted([*self._held, _data(self._numbers, self._texts)])
        if self._spool is None:
            return MemoryTable(data, REQUEST_COLUMNS)
        self._write(data)
        self._numbers, self._texts, self._held = array("q"), [], []
        self._finished = self._spool.finish()
        return self._finished

    def _write_what_is_in_order(self) -> None:
        """Write the full row groups that no request that is still to end comes before."""
        if self._finished is not None:
            raise InvariantError("requests ended after the table was finished")
        self._held.append(_data(self._numbers, self._texts))
        self._numbers, self._texts = array("q"), []
        oldest = next(iter(self._live), _NEVER)
        num_ready = sum(np.count_nonzero(_arrivals(data) <= oldest) for data in self._held)
        num_leaving = num_ready - num_ready % self._row_group_rows
        if not num_leaving:
            return
        self._spool = self._spool or Spool(REQUEST_COLUMNS)
        data = _sorted(self._held)
        self._write(data.slice(0, num_leaving))
        # A copy: a slice would keep what has left.
        self._held = [data.take(np.arange(num_leaving, data.num_rows))]

    def _write(self, data: pa.Table) -> None:
        for start in range(0, data.num_rows, self._row_group_rows):
            row_group = data.slice(start, self._row_group_rows)
            self._check_order(_arrivals(row_group))
            self._spool.write(row_group)

    def _check_order(self, arrivals: np.ndarray) -> None:
        if arrivals[0] < self._last_written_ns:
            raise InvariantError(
                f"a request of {arrivals[0]} ns follows one of {self._last_written_ns} ns"
            )
        self._last_written_ns = int(arrivals[-1])


def _sorted(parts: Sequence[pa.Table]) -> pa.Table:
    """Return rows by arrival, then by end: a later part ended later."""
    import pyarrow as pa

    data = pa.concat_tables(parts)
    return data.take(np.argsort(_arrivals(data), kind="stable"))


def _arrivals(data: pa.Table) -> np.ndarray:
    return data.column("arrival_ns").to_numpy()


def _data(numbers: array[int], texts: list[str | None]) -> pa.Table:
    """Return rows as columns."""
    import pyarrow as pa

    columns = dict.fromkeys(REQUEST_COLUMNS)
    values = np.frombuffer(numbers, np.int64).reshape(-1, len(INTEGER_COLUMNS)).T.copy()
    for name, column in zip(INTEGER_COLUMNS, values, strict=True):
        columns[name] = pa.array(column, mask=column < 0 if name in _OPTIONAL else None)
    for idx, name in enumerate(TEXT_COLUMNS):
        columns[name] = pa.array(texts[idx :: len(TEXT_COLUMNS)], pa.string())
    return pa.table(columns)
