"""What an example is: text, numbers that are checked, and a drawing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Check:
    """A value that a document states beside the one that the library computes."""

    what: str
    stated: Any
    computed: Any
    source: str

    @property
    def holds(self) -> bool:
        """True if both are equal."""
        return self.stated == self.computed


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: ``data`` for programs, ``lines`` for people.

    draw fills an empty matplotlib figure of ``size`` inches.
    """

    name: str
    title: str
    lines: tuple[str, ...]
    data: dict[str, Any]
    checks: tuple[Check, ...]
    draw: Callable[[Figure], None]
    size: tuple[float, float] = (8.0, 4.6)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.holds)
