"""Compiling plain loops with Numba, where it is installed; without it they are plain Python.

A concept's compiled half stands in the file beside it: ``block_pool.py``,
``block_pool_compiled.py``. It is written as loops over arrays, so that it runs both ways:
``NUMBA_DISABLE_JIT=1`` steps through it in a debugger.

Compiled code is kept on disk, under ``$KVSIM_CACHE_DIR``, else ``$XDG_CACHE_HOME/kvsim``, else
``~/.cache/kvsim``, in a folder named by a digest of all our sources: Numba looks only at the file
of a function to see whether it has changed, not at the files of what the function calls.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_PATTERN = "*_compiled.py"


@cache
def is_available() -> bool:
    """Return whether functions are compiled: Numba is installed and not switched off."""
    switched_off = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    return not switched_off and importlib.util.find_spec("numba") is not None


def compiled(function: Function) -> Function:
    """Compile a function at its first call, or leave it as it is where Numba is not at hand.

    It must not make arrays: without counting references to them, which costs more than the loops,
    in time and above all in compilation. Integers wrap at 64 bits and indices are not checked in
    compiled code; the same loops run in plain Python by the tests, where both would be seen.
    """
    return _compiled(function, counts_references=False)


def compiled_door(function: Function) -> Function:
    """Compile a function that Python calls: it may make arrays."""
    return _compiled(function, counts_references=True)


def _compiled(function: Function, counts_references: bool) -> Function:
    if not is_available():
        return function
    import numba

    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_dir())
    try:
        jitted: Function = numba.njit(cache=True, error_model="numpy", _nrt=counts_references)(
            function
        )
    finally:
        numba.config.CACHE_DIR = before
    return jitted


@cache
def cache_dir() -> Path:
    """Return the folder of compiled code for exactly these sources; it need not exist."""
    root = os.environ.get("KVSIM_CACHE_DIR")
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        root = os.path.join(base, "kvsim")
    folder = Path(root) / f"compiled-{_sources_digest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"kvsim-{os.getuid()}" / folder.name
    return folder


def is_cached() -> bool:
    """Return whether compiled code of these sources lies on disk."""
    return any(cache_dir().rglob("*.nbi"))


def _constants(package: Path) -> Iterator[Path]:
    """Yield the files that compiled ones import from: their constants are frozen into the code."""
    for path in package.rglob(_PATTERN):
        for name in re.findall(r"^from sim\.([\w.]+) import", path.read_text(), re.MULTILINE):
            found = package / f"{name.replace('.', '/')}.py"
            yield found if found.exists() else found.with_suffix("") / "__init__.py"


def _sources_digest() -> str:
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted({*package.rglob(_PATTERN), *_constants(package), Path(__file__).resolve()}):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
