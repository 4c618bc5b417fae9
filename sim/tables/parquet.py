"""Tables of a result folder: frames to files and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sim.tables.arrow import ROW_GROUP_ROWS
from sim.tables.table import FileTable, MemoryTable, Table

if TYPE_CHECKING:
    import pandas as pd


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table. Equal tables give equal bytes for one version of pyarrow."""
    MemoryTable.of(frame).write(path)


def read_parquet(path: Path, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Read a table that ``write_parquet`` wrote; columns not in ``kinds`` are int64.

    Raises ValueError as ``open_table``.
    """
    return open_table(path, kinds).frame()


def open_table(path: Path, kinds: Mapping[str, str]) -> Table:
    """Return the table of a file; of more than one row group, nothing is read until asked for.

    Columns not in ``kinds`` are int64.

    Raises ValueError if the file is no table, or a column of ``kinds`` is not there or is of
    another type.
    """
    import pyarrow as pa

    try:
        table = FileTable.opened(path, kinds)
        if table.num_rows > ROW_GROUP_ROWS:
            return table
        return MemoryTable(table.in_memory(), table.kinds)
    except pa.ArrowException as error:
        raise ValueError(f"{path.name}: {error}") from None
