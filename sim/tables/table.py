"""A table of a run, wherever its rows are: in memory if they are few, else in a Parquet file."""

from __future__ import annotations

import shutil
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from sim.tables.arrow import ROW_GROUP_ROWS, arrow_schema, parquet_writer
from sim.tables.frames import frame_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_COPY_BYTES = 1 << 23


class Rows:
    """Some rows of a table, one after the other, as numpy sees their columns.

    Raises KeyError for a column that was not asked for.
    """

    def __init__(self, data: pa.Table):
        self.data = data

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.data.num_rows)

    def integers(self, name: str) -> np.ndarray:
        """Return a column as int64, 0 where it is missing."""
        column = self.data.column(name)
        return (column.fill_null(0) if column.null_count else column).to_numpy()

    def is_known(self, name: str) -> np.ndarray:
        """Return for each row whether the column has a value there."""
        column = self.data.column(name)
        return column.is_valid().to_numpy() if column.null_count else np.ones(len(self), bool)

    def is_text(self, name: str, text: str) -> np.ndarray:
        """Return for each row whether the column holds this text."""
        import pyarrow.compute as pc

        return pc.equal(self.data.column(name), text).fill_null(False).to_numpy()

    def counts(self, name: str) -> dict[str, int]:
        """Return how often each text is in a column."""
        return {
            pair["values"]: pair["counts"]
            for pair in self.data.column(name).value_counts().to_pylist()
        }


class Table(ABC):
    """Rows that do not change any more, read a row group at a time.

    kinds : column -> pandas' type (``sim.tables.columns``)

    Source: ours.
    """

    def __init__(self, kinds: Mapping[str, str]):
        self.kinds = dict(kinds)

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Number of rows."""

    @abstractmethod
    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Rows]:
        """Yield all rows in order, at most a row group at once, of these columns or of all."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """Return the whole table in memory."""

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write it as Parquet. Equal tables give equal bytes for one version of pyarrow."""

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the table in frames of at most a row group; of an empty table, an empty one."""
        if not self.num_rows:
            yield self.frame()
        for rows in self.rows():
            yield frame_of(rows.data, self.kinds)

    def every(self, stride: int) -> Table:
        """Return rows 0, stride, 2 x stride, ... as a table in memory."""
        taken, passed = [], 0
        for rows in self.rows():
            taken.append(rows.data.take(np.arange(-passed % stride, len(rows), stride)))
            passed += len(rows)
        return MemoryTable(_together(taken, self.kinds), self.kinds)

    def counts(self, column: str) -> dict[str, int]:
        """Return how often each text is in a column."""
        counts: Counter[str] = Counter()
        for rows in self.rows((column,)):
            counts.update(rows.counts(column))
        return dict(counts)

    def that(self, column: str, text: str, columns: Sequence[str]) -> pd.DataFrame:
        """Return these columns of the rows that hold a text in ``column``; they should be few."""
        import pyarrow as pa

        found = [
            rows.data.filter(pa.array(rows.is_text(column, text))).select(columns)
            for rows in self.rows(tuple(dict.fromkeys((column, *columns))))
        ]
        kinds = {name: self.kinds[name] for name in columns}
        return frame_of(_together(found, kinds), kinds)

    def differing_columns(self, other: Table) -> list[str]:
        """Return the columns whose values differ in two tables of equal columns and length."""
        differing: dict[str, None] = {}
        for mine, others in _aligned(self, other):
            for name in self.kinds:
                if not mine.column(name).equals(others.column(name)):
                    differing[name] = None
        return [name for name in self.kinds if name in differing]


def _aligned(left: Table, right: Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield equal stretches of two tables of one length, whatever their row groups are."""
    others = (rows.data for rows in right.rows())
    other = None
    for rows in left.rows():
        mine = rows.data
        while mine.num_rows:
            if other is None or not other.num_rows:
                other = next(others)
            size = min(mine.num_rows, other.num_rows)
            yield mine.slice(0, size), other.slice(0, size)
            mine, other = mine.slice(size), other.slice(size)


class MemoryTable(Table):
    """A table in memory, in Arrow's columns; its frame is made once.

    data : its columns are int64 and text, in the order of kinds
    frame : what pandas shows, if it is there already
    """

    def __init__(
        self,
        data: pa.Table,
        kinds: Mapping[str, str],
        frame: pd.DataFrame | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
    ):
        super().__init__(kinds)
        self.row_group_rows = row_group_rows
        self._data = data
        self._frame = frame

    @classmethod
    def of(cls, frame: pd.DataFrame, kinds: Mapping[str, str] | None = None) -> MemoryTable:
        """Return the table of a frame; columns not in ``kinds`` are what they are in the frame."""
        import pyarrow as pa

        data = pa.Table.from_pandas(frame, preserve_index=False)
        kinds = {name: _kind(data, name) for name in frame.columns} | dict(kinds or {})
        # Without pandas' own notes, which name versions.
        return cls(data.cast(arrow_schema(kinds)).replace_schema_metadata(), kinds, frame)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._data.num_rows)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Rows]:
        """Yield all rows, at most a row group at once."""
        data = self._data if columns is None else self._data.select(columns)
        for start in range(0, self.num_rows, self.row_group_rows):
            yield Rows(data.slice(start, self.row_group_rows))

    def frame(self) -> pd.DataFrame:
        """Return the table as pandas shows it, the same object each time."""
        if self._frame is None:
            self._frame = frame_of(self._data, self.kinds)
        return self._frame

    def write(self, path: Path) -> None:
        """Write it as Parquet."""
        with parquet_writer(path, self.kinds) as writer:
            for start in range(0, max(1, self.num_rows), self.row_group_rows):
                writer.write_table(self._data.slice(start, self.row_group_rows))


class FileTable(Table):
    """A table in a Parquet file, read from there each time.

    The file stays readable when it loses its name: it may be a temporary one that never had one, or
    in a folder that is replaced. It is closed with the last reference to the table.

    Source: ours.
    """

    def __init__(self, file: BinaryIO, kinds: Mapping[str, str]):
        super().__init__(kinds)
        self._use(file)

    @classmethod
    def opened(cls, path: Path, kinds: Mapping[str, str]) -> FileTable:
        """Return the table of a file; columns not in ``kinds`` are int64.

        Raises ValueError if the file is no table or lacks a column of ``kinds``.
        """
        table = cls(path.open("rb"), kinds)
        names = table._parquet.schema_arrow.names
        missing = [name for name in kinds if name not in names]
        if missing:
            raise ValueError(f"{path.name} has no column {missing[0]}")
        table.kinds = {name: kinds.get(name, "int64") for name in names}
        return table

    def _use(self, file: BinaryIO) -> None:
        import pyarrow.parquet as pq

        self._file = file
        self._close = weakref.finalize(self, file.close)
        self._parquet = pq.ParquetFile(file)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._parquet.metadata.num_rows)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Rows]:
        """Yield all rows, a row group at once."""
        names = list(self.kinds if columns is None else columns)
        schema = arrow_schema({name: self.kinds[name] for name in names})
        for idx in range(self._parquet.num_row_groups):
            # One thread: a second one would gain little here and hold more.
            data = self._parquet.read_row_group(idx, columns=names, use_threads=False)
            yield Rows(data.select(names).cast(schema))

    def frame(self) -> pd.DataFrame:
        """Return the whole table, read anew each time: keep it in a variable."""
        return frame_of(self.in_memory(), self.kinds)

    def in_memory(self) -> pa.Table:
        """Return all rows."""
        return _together([rows.data for rows in self.rows()], self.kinds)

    def write(self, path: Path) -> None:
        """Copy the file, and read from the copy from then on: a temporary file is given up."""
        self._file.seek(0)
        with path.open("wb") as copy:
            shutil.copyfileobj(self._file, copy, _COPY_BYTES)
        close = self._close
        self._use(path.open("rb"))
        close()


def _together(parts: Sequence[pa.Table], kinds: Mapping[str, str]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(parts) if parts else arrow_schema(kinds).empty_table()


def _kind(data: pa.Table, name: str) -> str:
    import pyarrow as pa

    return "int64" if pa.types.is_integer(data.schema.field(name).type) else "string"
