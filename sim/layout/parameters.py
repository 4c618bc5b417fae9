"""Named choices with parameters: ``name:parameter=value,parameter=value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self, TypeVar

from sim.errors import ConfigError
from sim.registry import Registry
from sim.units import parse_bytes

MOST = 2**40


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: ``read`` makes its value of text; its ValueError says what is allowed."""

    default: Any
    read: Callable[[str], Any]
    text: str


@dataclass(frozen=True)
class Parametrised:
    """A function with parameters and where it comes from.

    ``function(..., **values)`` gets one keyword argument for each parameter. source: where the
    choice is stated in public, or that it is ours.
    """

    summary: str
    source: str
    function: Callable[..., Any]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Each parameter's value, the default where none was given."""
        return {name: p.default for name, p in self.parameters.items()} | dict(self.given)

    def with_values(self, key: str, pairs: str) -> Self:
        """Return the choice with ``parameter=value,parameter=value`` read.

        Raises ConfigError for an unknown name and for a value that cannot be read; ``key`` says
        where the text stands.
        """
        given = dict(self.given)
        for pair in pairs.split(","):
            name, _, text = pair.partition("=")
            given[name.strip()] = self._read(key, name.strip(), text.strip())
        return replace(self, given=given)

    def _read(self, key: str, name: str, text: str) -> Any:
        if not self.parameters:
            raise ConfigError.one(key, name, "no parameters: it has none")
        if name not in self.parameters:
            raise ConfigError.unknown(key, name, self.parameters)
        try:
            return self.parameters[name].read(text)
        except ValueError as error:
            raise ConfigError.one(f"{key}.{name}", text, str(error)) from None


T = TypeVar("T")


class ParametrisedRegistry(Registry[T]):
    """A table whose look-up also reads parameters behind a colon.

    Plain functions may be registered as they are; they have no parameters.
    """

    def __getitem__(self, text: str) -> T:
        name, colon, pairs = str(text).partition(":")
        entry = super().__getitem__(name)
        if not colon:
            return entry
        key = f"{self.kind}.{name}"
        if not isinstance(entry, Parametrised):
            raise ConfigError.one(key, pairs, "no parameters: it has none")
        return entry.with_values(key, pairs)


def count(text: str) -> int:
    """Return a positive integer."""
    if text.isascii() and text.isdecimal() and 1 <= int(text[:20]) <= MOST:
        return int(text)
    raise ValueError(f"an integer from 1 to {MOST}")


def number(text: str) -> Fraction:
    """Return a number that is not negative, exactly: 0.1 is a tenth."""
    allowed = f"a number from 0 to {MOST}"
    try:
        value = Fraction(text) if len(text) <= 40 and "e" not in text.lower() else None
    except (ValueError, ZeroDivisionError):
        raise ValueError(allowed) from None
    if value is None or not 0 <= value <= MOST:
        raise ValueError(allowed)
    return value


def switch(text: str) -> bool:
    """Return true or false."""
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def num_bytes(text: str) -> int:
    """Return bytes, such as 64MiB."""
    try:
        return parse_bytes(text)
    except ConfigError as error:
        raise ValueError(error.problems[0].allowed) from None
