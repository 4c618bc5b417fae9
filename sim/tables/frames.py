"""Tables as pandas shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.tables.columns import REQUEST_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


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


def frame_of(data: pa.Table, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Return Arrow's columns as pandas shows them, each of its type in ``kinds``."""
    import pandas as pd

    return pd.DataFrame({name: _series(data.column(name), kind) for name, kind in kinds.items()})


def _series(column: pa.ChunkedArray, kind: str) -> Any:
    from pandas.api.types import pandas_dtype

    if kind == "int64":
        return column.to_numpy().copy()  # Arrow's own memory cannot be written to
    return pandas_dtype(kind).__from_arrow__(column)
