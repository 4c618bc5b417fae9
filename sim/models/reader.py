"""Typed reading of a ``config.json``: every wrong field becomes one line, none an exception."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.errors import ConfigError, Problem, nearest

MAX_INTEGER = 2**31
MAX_LAYERS = 10_000
_REQUIRED: Any = object()


class ConfigReader:
    """Reads fields of one JSON object and collects what is wrong with them.

    A wrong field is recorded and a harmless value returned, so that one pass reports every
    problem; ``check`` is silent once a field is wrong, because what follows from a stand-in value
    says nothing. JSON ``null`` counts as absent. ``finish`` raises what was collected.
    """

    def __init__(self, data: Mapping[str, Any], origin: str):
        self._data = data
        self._origin = origin
        self._prefix = ""
        self.problems: list[Problem] = []
        self.defaults_taken: list[str] = []

    def section(self, key: str) -> ConfigReader:
        """Return a reader of a nested object, which shares the list of problems."""
        value = self._data.get(key)
        if not isinstance(value, Mapping):
            self._wrong(key, value, "a JSON object")
            value = {}
        inner = ConfigReader(value, self._origin)
        inner._prefix = f"{self._prefix}{key}."
        inner.problems, inner.defaults_taken = self.problems, self.defaults_taken
        return inner

    def has(self, key: str) -> bool:
        """True if the file gives the key a value."""
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        """Return the value as JSON gave it, None if absent."""
        return self._data.get(key)

    def integer(
        self, key: str, default: int = _REQUIRED, minimum: int = 1, maximum: int = MAX_INTEGER
    ) -> int:
        """Return an integer of [minimum, maximum]; without the key, the default or a problem."""
        value = self._data.get(key)
        if value is None and default is not _REQUIRED:
            return self._default(key, default)
        if not _is_integer(value, minimum, maximum):
            self._wrong(key, value, f"an integer from {minimum} to {maximum}")
            return minimum
        return value

    def num_layers(self, key: str = "num_hidden_layers") -> int:
        """Return the depth, bounded so that no file can make the lists endless."""
        return self.integer(key, maximum=MAX_LAYERS)

    def text(self) -> ConfigReader:
        """Return the reader of ``text_config`` where a multimodal file nests one, else itself."""
        return self.section("text_config") if self.has("text_config") else self

    def boolean(self, key: str, default: bool) -> bool:
        """Return a JSON boolean; without the key, the default."""
        value = self._data.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
            return default
        return value

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        """Return one of the allowed strings; without the key, the default."""
        value = self._data.get(key)
        names = list(allowed)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, str) or value not in names:
            self._wrong(key, value, f"one of {', '.join(names)}", nearest(str(value), names))
            return default
        return value

    def strings(self, key: str, length: int, allowed: Iterable[str]) -> list[str]:
        """Return the first ``length`` entries of a list of allowed strings.

        Longer lists are cut: releases append entries for speculative layers.
        """
        value = self._data.get(key)
        names = list(allowed)
        if not isinstance(value, list) or len(value) < length:
            self._wrong(key, value, f"a list of at least {length} strings")
            return names[:1] * length
        for idx, entry in enumerate(value[:length]):
            if not isinstance(entry, str) or entry not in names:
                self._wrong(f"{key}[{idx}]", entry, f"one of {', '.join(names)}")
                return names[:1] * length
        return value[:length]

    def integers(
        self, key: str, length: int, minimum: int = 0, maximum: int = MAX_INTEGER
    ) -> list[int]:
        """Return the first ``length`` entries of a list of integers; longer lists are cut."""
        value = self._data.get(key)
        if not isinstance(value, list) or len(value) < length:
            self._wrong(key, value, f"a list of at least {length} integers")
            return [minimum] * length
        for idx, entry in enumerate(value[:length]):
            if not _is_integer(entry, minimum, maximum):
                self._wrong(f"{key}[{idx}]", entry, f"an integer from {minimum} to {maximum}")
                return [minimum] * length
        return value[:length]

    def indices(self, key: str, length: int, first: int = 0) -> set[int]:
        """Return the distinct layer numbers of a list, each from ``first`` to the depth."""
        value = self._data.get(key)
        if not isinstance(value, list) or len(value) > MAX_LAYERS:
            self._wrong(key, value, f"a list of at most {MAX_LAYERS} layer numbers")
            return set()
        last = first + length - 1
        for idx, entry in enumerate(value):
            if not _is_integer(entry, first, last):
                self._wrong(f"{key}[{idx}]", entry, f"a layer number from {first} to {last}")
                return set()
        return set(value)

    def first_of(self, *keys: str) -> str:
        """Return the first of these names that the file gives a value, else the first name."""
        return next((key for key in keys if self.has(key)), keys[0])

    def check(self, condition: bool, key: str, value: object, allowed: str) -> None:
        """Record a problem unless the condition holds or a field was wrong before."""
        if not condition and not self.problems:
            self._wrong(key, value, allowed)

    def finish(self) -> None:
        """Raise a ConfigError with one line per problem, if there is any."""
        if self.problems:
            raise ConfigError(self.problems)

    def key(self, name: str) -> str:
        """Return the full path of a key: file, section, key."""
        return f"{self._origin}:{self._prefix}{name}"

    def _default(self, key: str, default: Any) -> Any:
        self.defaults_taken.append(f"{self._prefix}{key}={default}")
        return default

    def _wrong(self, key: str, value: object, allowed: str, hint: str | None = None) -> None:
        shown = "missing" if value is None else value
        self.problems.append(Problem(self.key(key), shown, allowed, hint))


def _is_integer(value: object, minimum: int, maximum: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return minimum <= value <= maximum
