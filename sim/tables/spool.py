"""Where the row groups of a long run wait until its result is saved."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from sim.errors import ConfigError
from sim.tables.arrow import parquet_writer
from sim.tables.table import FileTable

if TYPE_CHECKING:
    import pyarrow as pa


class Spool:
    """A Parquet file without a name, in the system's folder for temporary files.

    It never had a name, or lost it at once, so nothing is left of it however the process ends. Its
    space is given back with the spool, or with the table that ``finish`` returns.

    Raises ConfigError when there is no room for it.

    Source: ours.
    """

    def __init__(self, kinds: Mapping[str, str]):
        self._kinds = kinds
        self._file: Any = tempfile.TemporaryFile(prefix="kvsim-")  # noqa: SIM115
        self._writer = parquet_writer(self._file, kinds)
        self._discard = weakref.finalize(self, _discard, self._file, self._writer)

    def write(self, data: pa.Table) -> None:
        """Append one row group."""
        try:
            self._writer.write_table(data)
        except OSError as error:
            raise _no_room(error) from None

    def finish(self) -> FileTable:
        """Return the table that was written; nothing can be written any more."""
        try:
            self._writer.close()
            self._file.flush()
        except OSError as error:
            raise _no_room(error) from None
        self._discard.detach()
        return FileTable(self._file, self._kinds)


def _discard(file: BinaryIO, writer: Any) -> None:
    with suppress(OSError):  # a full disk
        writer.close()
    with suppress(OSError):
        file.close()


def _no_room(error: OSError) -> ConfigError:
    allowed = f"a folder with room for the tables of a long run ({error.strerror or error})"
    return ConfigError.one("TMPDIR", tempfile.gettempdir(), allowed)
