"""The parameters of a plug-in: key, default and what it means, as its class says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: : (.*))?")


class Parameter(NamedTuple):
    """One key under ``params``; a section's keys are written with a dot."""

    key: str
    default: Any
    text: str


def parameters(params: Any, prefix: str = "") -> Iterator[Parameter]:
    """Yield the parameters of a pydantic class, or those of a section with its own defaults.

    A key that must be given has the default ``needed``. A key whose value is None because another
    choice is made shows what it is with the choice that uses it (``DEFAULTS``).
    """
    fields = (params if isinstance(params, type) else type(params)).model_fields
    texts = descriptions(params)
    for name, field in fields.items():
        value = _default(params, name, field)
        if hasattr(type(value), "model_fields"):
            yield Parameter(prefix + name, "", texts.get(name, ""))
            yield from parameters(value, f"{prefix}{name}.")
        else:
            yield Parameter(prefix + name, value, texts.get(name, ""))


def _default(params: Any, name: str, field: Any) -> Any:
    value = field.default if isinstance(params, type) else getattr(params, name)
    if value is None:
        value = getattr(params, "DEFAULTS", {}).get(name)
    return "needed" if field.is_required() and isinstance(params, type) else value


def descriptions(params: Any) -> dict[str, str]:
    """Return what the docstring of a class says about each of its fields, base classes included.

    An entry is ``name : text`` or ``name, name : text``; indented lines below it go on with it.
    """
    kind = params if isinstance(params, type) else type(params)
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _entries(inspect.cleandoc(base.__dict__.get("__doc__") or ""), kind.model_fields)
    return found


def _entries(text: str, known: Any) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry and set(entry[1].split(", ")) <= set(known):
            names = entry[1].split(", ")
            found |= {name: [entry[2] or ""] for name in names}
        elif names and line.startswith("    "):
            for name in names:
                found[name].append(line.strip())
        else:
            names = []
    return {name: _sentence(parts) for name, parts in found.items()}


def _sentence(parts: list[str]) -> str:
    """The first part is the unit where more follow; None is written as in YAML."""
    unit, *rest = parts
    text = f"{unit}: {' '.join(rest)}" if unit and rest else " ".join([unit, *rest])
    return re.sub(r"\bNone\b", "null", text.strip().replace("``", ""))
