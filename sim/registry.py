"""Tables of plug-ins: a name, an object, and errors that list the alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from sim.errors import ConfigError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """An ordered table of named objects of one kind; order is documentation order.

    Example
    -------
    >>> table = Registry("policy", {"lru": 1})
    >>> table["lrru"]
    Traceback (most recent call last):
    sim.errors.ConfigError: policy: lrru: known: lru; did you mean lru?
    """

    def __init__(self, kind: str, entries: Mapping[str, T]):
        self.kind = kind
        self._entries: dict[str, T] = dict(entries)

    def register(self, name: str, obj: T) -> None:
        """Add an entry at run time; a name that is taken is an error."""
        if name in self._entries:
            raise ConfigError.one(self.kind, name, "a name that is not registered yet")
        self._entries[name] = obj

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise ConfigError.unknown(self.kind, str(name), self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
