"""The result tables: their columns, their types, where their rows are, and their bytes on disk."""

from __future__ import annotations

from sim.tables.arrow import ROW_GROUP_ROWS
from sim.tables.columns import (
    ALONE_PREFIX,
    HELD_PREFIX,
    LOOKUP_COLUMNS,
    OUTCOMES,
    PARTS,
    REASON_COLUMNS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    WASTE_COLUMNS,
    alone_columns,
    step_columns,
)
from sim.tables.frames import integer_frame, request_frame, typed_frame
from sim.tables.integer_rows import IntegerRows
from sim.tables.parquet import open_table, read_parquet, write_parquet
from sim.tables.request_rows import RequestRows
from sim.tables.table import FileTable, MemoryTable, Rows, Table

__all__ = [
    "ALONE_PREFIX",
    "HELD_PREFIX",
    "LOOKUP_COLUMNS",
    "OUTCOMES",
    "PARTS",
    "REASON_COLUMNS",
    "REQUEST_COLUMNS",
    "ROW_GROUP_ROWS",
    "STEP_COLUMNS",
    "WASTE_COLUMNS",
    "FileTable",
    "IntegerRows",
    "MemoryTable",
    "RequestRows",
    "Rows",
    "Table",
    "alone_columns",
    "integer_frame",
    "open_table",
    "read_parquet",
    "request_frame",
    "step_columns",
    "typed_frame",
    "write_parquet",
]
