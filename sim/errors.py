"""What goes wrong, and in which words a user reads it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_LINES = 10
MAX_NAMES = 30


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong value: where it stands, what it is, what is allowed, and a likely meaning."""

    key: str
    value: object
    allowed: str
    suggestion: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{self.key}: {_shown(self.value)}: {self.allowed}{hint}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``name``, or None if none is close."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


class SimError(Exception):
    """Base of every error that this project raises on purpose."""


class ConfigError(SimError):
    """Wrong input: one line per problem, at most ten, exit code 2 on the command line."""

    def __init__(self, problems: Sequence[Problem]):
        self.problems = tuple(problems)
        # SimPy and pickle rebuild an error from its arguments.
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @classmethod
    def one(cls, key: str, value: object, allowed: str, suggestion: str | None = None):
        """Build an error of a single problem."""
        return cls([Problem(key, value, allowed, suggestion)])

    @classmethod
    def unknown(cls, key: str, value: str, known: Iterable[str]):
        """Build the error for a name that is not among ``known``, the nearest one suggested."""
        names = list(known)
        close = nearest(value, names)
        count = MAX_NAMES if len(names) > MAX_NAMES else 1
        near = difflib.get_close_matches(value, names, n=count, cutoff=0.5)
        ordered = [*near, *(n for n in names if n not in near)]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        return cls.one(key, value, f"known: {', '.join(ordered[:MAX_NAMES])}{more}", close)

    def lines(self) -> list[str]:
        """Return the lines to print, without the program's name."""
        shown = [str(p) for p in self.problems[:MAX_LINES]]
        more = len(self.problems) - MAX_LINES
        if more > 0:
            shown[-1] += f" (and {more} more problems)"
        return shown


class TraceError(ConfigError):
    """A request trace that cannot be read; the key is ``file:line[:field]``."""


class InvariantError(SimError):
    """Broken state, with every term of the broken law. Never raised by wrong input."""
