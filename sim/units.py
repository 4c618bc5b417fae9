"""Quantities with units: bytes, durations, and how they are printed."""

from __future__ import annotations

import re
from math import isfinite

from sim.errors import ConfigError

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", re.ASCII)


def parse_bytes(text: str | float, key: str = "size") -> int:
    """Return a number of bytes from ``20GiB``, ``60 GB`` or a plain integer.

    >>> parse_bytes("20GiB"), parse_bytes("1.5kB"), parse_bytes(7)
    (21474836480, 1500, 7)
    """
    allowed = "a number of bytes, optionally with KiB, MiB, GiB, TiB, kB, MB, GB or TB"
    if isinstance(text, float) and text.is_integer():
        text = int(text)
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise ConfigError.one(key, text, allowed)
    if isinstance(text, int):
        return _not_negative(text, key, allowed)
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _BYTE_UNITS:
        raise ConfigError.one(key, text, allowed)
    unit = _BYTE_UNITS[match[2].lower()]
    if "." not in match[1]:
        return _digits(match[1], key, allowed) * unit
    value = float(match[1]) * unit
    if not isfinite(value):
        raise ConfigError.one(key, text, allowed)
    return int(value)


def _digits(text: str, key: str, allowed: str) -> int:
    if len(text) > 18:
        raise ConfigError.one(key, text, allowed)
    return int(text)


def _not_negative(value: int, key: str, allowed: str) -> int:
    if value < 0:
        raise ConfigError.one(key, value, allowed)
    return value


def gib_text(num_bytes: int) -> str:
    """Return GiB as vLLM prints it: two decimals at most, a Python float (``20.0``)."""
    return str(round(num_bytes / GIB, 2))


def format_bytes(num_bytes: int) -> str:
    """Return a size for people, with a binary unit: ``128 KiB``, ``2 MiB``, ``59.9 GiB``."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(num_bytes) >= unit:
            return f"{num_bytes / unit:.4g} {name}"
    return f"{num_bytes} B"


def cdiv(a: int, b: int) -> int:
    """Return the ceiling of ``a / b``."""
    return -(-a // b)
