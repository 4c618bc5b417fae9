"""Lines of JSON from a file that may be compressed, each checked, none kept."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from msgspec import MsgspecError
from msgspec.json import Decoder

from .errors import TraceFormatError

MAX_LINE_BYTES = 2**24  # 300 times the longest line of any public trace we know

_MAGIC = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_decoded = Decoder().decode


class Row(NamedTuple):
    """The fields of one line, and where they stand."""

    path: Path
    line: int
    fields: dict[str, Any]

    def refuse(self, field: str | None, value: object, allowed: str) -> NoReturn:
        """Raise the error for a value of this line."""
        raise TraceFormatError(self.path, self.line, field, value, allowed)


def rows(path: Path) -> Iterator[Row]:
    """Yield each line that is not blank; plain, gzip or xz is told by the first bytes.

    Raises
    ------
    TraceFormatError
        not a regular file or not readable; damaged or cut compression; not UTF-8; not one JSON
        object a line; a line over ``MAX_LINE_BYTES``; no line at all
    """
    found = False
    for line, content in _lines(path):
        if content.strip():
            found = True
            yield Row(path, line, _json_object(path, line, content))
    if not found:
        raise TraceFormatError(path, None, None, "empty", "a file with at least one request")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    line = 0
    try:
        with _opened(path) as stream:
            while content := stream.readline(MAX_LINE_BYTES + 1):
                line += 1
                yield line, content
    except _UNREADABLE as error:
        allowed = "a whole file: plain, gzip or xz"
        raise TraceFormatError(path, line + 1, None, str(error), allowed) from None


def _opened(path: Path) -> BinaryIO:
    # A pipe or a device could block for ever, or differ when it is read again.
    if not path.is_file():
        raise TraceFormatError(path, None, None, "not there", "a regular file that exists")
    with path.open("rb") as stream:
        head = stream.read(6)
    for magic, opener in _MAGIC.items():
        if head.startswith(magic):
            return opener(path, "rb")
    return path.open("rb")


def _json_object(path: Path, line: int, content: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Plain lines are read the fast way. It takes less than Python's own reader does, and reads what
    it takes as that one does; so the latter decides about what it refuses.
    """
    try:
        found = _decoded(content) if content.isascii() else None
    except (MsgspecError, RecursionError):
        found = None
    if type(found) is dict and len(content) <= MAX_LINE_BYTES:
        return found
    return _checked_json_object(path, line, content)


def _checked_json_object(path: Path, line: int, content: bytes) -> dict[str, Any]:
    if len(content) > MAX_LINE_BYTES:
        allowed = f"a line of at most {MAX_LINE_BYTES} bytes"
        raise TraceFormatError(path, line, None, _excerpt(content), allowed)
    try:
        found = json.loads(content.removeprefix(_BYTE_ORDER_MARK).decode("utf-8"))
    except UnicodeDecodeError:
        raise TraceFormatError(path, line, None, _excerpt(content), "UTF-8 text") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        allowed = "one whole JSON object a line"
        raise TraceFormatError(path, line, None, _excerpt(content), allowed)
    return found


def _excerpt(content: bytes) -> str:
    return content[:80].decode("utf-8", "backslashreplace").strip()
