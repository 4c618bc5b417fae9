"""The result tables: their columns, their types, and their bytes on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

PARTS = (
    "remainder",
    "null_block",
    "free",
    "layer_padding",
    "page_padding",
    "reusable",
    "lookahead",
    "out_of_window",
    "tail",
    "live",
)
"""The parts of the KV memory, in the order in which a byte's part is decided."""

OUTCOMES = ("finished", "aborted", "rejected", "stuck")
"""How a request can end; ``stuck`` ones were left when nothing could go on."""

# A type with a capital letter (or "string") holds <NA> where the moment or the text never came.
REQUEST_COLUMNS = {
    "request_id": "string",
    "session_id": "string",
    "tags": "string",
    "arrival_ns": "int64",
    "first_scheduled_ns": "Int64",
    "first_token_ns": "Int64",
    "finish_ns": "Int64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "cached_tokens": "Int64",
    "preemptions": "int64",
    "outcome": "string",
    "reason": "string",
}
STEP_COLUMNS = (
    "step",
    "start_ns",
    "end_ns",
    "prefill_tokens",
    "decode_tokens",
    "num_running",
    "num_waiting",
    "preemptions",
    "free_blocks",
    "cached_free_blocks",
)
LOOKUP_COLUMNS = {
    "lookup": "int64",
    "request_id": "string",
    "step": "int64",
    "time_ns": "int64",
    "attempts": "int64",
    "admitted": "int64",
    "preemptions": "int64",
    "tokens": "int64",
    "hit_tokens": "int64",
    "blocks_taken": "int64",
    "cuts": "string",
}
REASON_COLUMNS = {
    "lookup": "int64",
    "group": "int64",
    "cause": "string",
    "first_token": "int64",
    "end_token": "int64",
    "tokens": "int64",
    "decides": "int64",
    "blocks": "int64",
    "by_group": "Int64",
    "by_cause": "string",
    "event_request": "string",
    "event_groups": "string",
    "event_ns": "Int64",
    "event_step": "Int64",
    "stored_by": "string",
    "stored_ns": "Int64",
    "stored_step": "Int64",
    "blocks_taken_since": "Int64",
}
ALONE_PREFIX = "alone_g"
WASTE_COLUMNS = ("step", "time_ns", *PARTS)
HELD_PREFIX = "held_blocks_g"


def step_columns(num_groups: int) -> tuple[str, ...]:
    """Return the columns of the step table: one of held blocks for each group at the end."""
    return (*STEP_COLUMNS, *(f"{HELD_PREFIX}{g}" for g in range(num_groups)))


def alone_columns(num_groups: int) -> tuple[str, ...]:
    """Return the last columns of the lookup table: what each group could have used alone."""
    return tuple(f"{ALONE_PREFIX}{g}" for g in range(num_groups))


def integer_frame(rows: Any, columns: Sequence[str]) -> pd.DataFrame:
    """Return a table of int64 columns; rows hold n x len(columns) integers, flat or nested."""
    import numpy as np
    import pandas as pd

    values = np.array(rows, dtype=np.int64).reshape(-1, len(columns))
    return pd.DataFrame({name: values[:, i].copy() for i, name in enumerate(columns)})


def request_frame(rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """Return the request table from rows in the order of ``REQUEST_COLUMNS``; None is missing."""
    return typed_frame(rows, REQUEST_COLUMNS)


def typed_frame(rows: Iterable[Sequence[Any]], kinds: Mapping[str, str]) -> pd.DataFrame:
    """Return a table from rows in the order of ``kinds``, column -> type; None is missing."""
    import pandas as pd

    rows = list(rows)
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(kinds)
    typed = zip(kinds.items(), columns, strict=True)
    return pd.DataFrame({name: pd.array(list(c), dtype=kind) for (name, kind), c in typed})


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table. Equal tables give equal bytes for one version of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    names = [_plain(pa, field) for field in table.schema]
    pq.write_table(table.cast(pa.schema(names)), path, compression="zstd", store_schema=False)


def _plain(pa: Any, field: Any) -> Any:
    """Without pandas' own notes, which name versions; text always as ``string``."""
    return pa.field(field.name, pa.int64() if pa.types.is_integer(field.type) else pa.string())


def read_parquet(path: Path, kinds: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read a table that ``write_parquet`` wrote; columns not in ``kinds`` are int64.

    Raises ValueError if a column of ``kinds`` is not there.
    """
    import pandas as pd
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    kinds = kinds or {}
    missing = [name for name in kinds if name not in table.column_names]
    if missing:
        raise ValueError(f"{path.name} has no column {missing[0]}")
    columns = {
        name: pd.array(table.column(name).to_pylist(), dtype=kinds.get(name, "int64"))
        for name in table.column_names
    }
    return pd.DataFrame(columns)
