"""What goes wrong in a request trace, and where."""

from __future__ import annotations

from os import PathLike, fspath


class TraceFormatError(Exception):
    """A trace file that cannot be read.

    Parameters
    ----------
    path : the file
    line : number of the line, from 1; None if the file as a whole is meant
    field : name of the field, None if the line as a whole is meant
    value : what stands there
    allowed : what may stand there
    """

    def __init__(
        self,
        path: str | PathLike[str],
        line: int | None,
        field: str | None,
        value: object,
        allowed: str,
    ):
        self.path = fspath(path)
        self.line = line
        self.field = field
        self.value = value
        self.allowed = allowed
        # All arguments, for SimPy and pickle make a copy of an error from its ``args``.
        super().__init__(self.path, line, field, value, allowed)

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.value)}: {self.allowed}"

    @property
    def key(self) -> str:
        """Where the problem is: ``file[:line[:field]]``."""
        place = [self.path]
        if self.line is not None:
            place.append(str(self.line))
        if self.field is not None:
            place.append(self.field)
        return ":".join(place)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
