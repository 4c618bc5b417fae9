"""Rows of integers that are appended one by one or in blocks."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InvariantError
from sim.tables.arrow import ROW_GROUP_ROWS
from sim.tables.spool import Spool
from sim.tables.table import MemoryTable, Table

if TYPE_CHECKING:
    import pyarrow as pa


class IntegerRows:
    """A table of int64 columns that grows at its end: in memory until a row group is full.

    Invariants: less than one row group is in memory, the rest is in the spool; a table of less than
    one row group has no spool.
    Cost: 8 bytes per column and row in memory.
    Source: ours.
    """

    def __init__(self, columns: Sequence[str], row_group_rows: int = ROW_GROUP_ROWS):
        self._kinds = dict.fromkeys(columns, "int64")
        self._row_group_rows = row_group_rows
        self._values: array[int] = array("q")
        self._num_full = len(columns) * row_group_rows
        self._spool: Spool | None = None
        self._finished: Table | None = None

    def append(self, row: Iterable[int]) -> None:
        """Append one row: an integer for each column."""
        self._values.extend(row)
        if len(self._values) >= self._num_full:
            self._spill()

    def append_block(self, rows: np.ndarray) -> None:
        """Append rows, shape (n, columns), of which nothing is kept."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != len(self._kinds):
            raise ValueError(f"rows of shape {rows.shape}, must be (n, {len(self._kinds)})")
        self._values.frombytes(rows.ravel().view(np.uint8))
        if len(self._values) >= self._num_full:
            self._spill()

    def finish(self) -> Table:
        """Return the table of all rows so far.

        Nothing may follow if some of them are in a file (InvariantError).
        """
        if self._spool is None:
            return MemoryTable(self._data(len(self._values)), self._kinds)
        if self._finished is None:
            if self._values:
                self._spool.write(self._data(len(self._values)))
            self._finished = self._spool.finish()
            del self._values[:]
        return self._finished

    def _spill(self) -> None:
        """Move the full row groups to the spool."""
        if self._finished is not None:
            raise InvariantError("rows follow after the table was finished")
        self._spool = self._spool or Spool(self._kinds)
        while len(self._values) >= self._num_full:
            self._spool.write(self._data(self._num_full))
            del self._values[: self._num_full]

    def _data(self, num_values: int) -> pa.Table:
        """Return the first values as columns."""
        import pyarrow as pa

        view = np.frombuffer(self._values, np.int64, num_values)
        columns = view.reshape(-1, len(self._kinds)).T.copy()
        return pa.table(dict(zip(self._kinds, columns, strict=True)))
