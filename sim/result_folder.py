"""Folders that appear whole or not at all, whatever kills the process that writes them."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOST = re.sub(r"[^A-Za-z0-9]", "", platform.node()) or "host"
_LEFTOVER = re.compile(r"\..+\.kvsim-(?:tmp|old)-([A-Za-z0-9]+)-([0-9]+)", re.ASCII)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder beside ``target``; when the block ends it becomes ``target``.

    What ``target`` held before is replaced as a whole. If the block raises, nothing has changed.
    A kill at any moment leaves the old folder, the new one, or (between two renames) none.
    Files reach the disk before the folder gets its name. Temporary folders that dead processes of
    this host left beside ``target`` are removed first.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    temporary, old = _beside(target, "tmp"), _beside(target, "old")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        _flush(temporary)
        if target.exists():
            target.rename(old)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    _flush_one(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Remove temporary folders in ``parent`` whose process on this host is dead."""
    for path in parent.iterdir():
        match = _LEFTOVER.fullmatch(path.name)
        if match and match[1] == _HOST and not _is_alive(int(match[2])) and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _beside(target: Path, kind: str) -> Path:
    return target.parent / f".{target.name}.kvsim-{kind}-{_HOST}-{os.getpid()}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _flush(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _flush_one(path)
    _flush_one(folder)


def _flush_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
