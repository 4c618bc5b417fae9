"""How every table is laid out in a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 131_072
"""Rows of a row group, and most rows of a table that is held in memory.

A row group of the step table for seven groups is 17.8 MB uncompressed and one of the request table
about 30 MB with its texts, so what is held of a long run is little beside the engine's own state.
Smaller ones would pay more for their dictionaries and statistics, and a day of a public trace
(some 10,000 requests, 100,000 steps) would no longer be one row group.
"""


def arrow_schema(kinds: Mapping[str, str]) -> pa.Schema:
    """Return the types of the columns in a file: int64 and text."""
    import pyarrow as pa

    types = {name: pa.string() if kind == "string" else pa.int64() for name, kind in kinds.items()}
    return pa.schema(types)


def parquet_writer(sink: Path | BinaryIO, kinds: Mapping[str, str]) -> Any:
    """Return a writer whose every ``write_table`` is one row group; one way to write them all."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, arrow_schema(kinds), compression="zstd", store_schema=False)
