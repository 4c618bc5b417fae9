"""What made a result: versions, platform, commit, input digests, and how long it took."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.profiling import Profile

_PACKAGES = ("hybrid-kv-sim", "numpy", "pandas", "pyarrow", "simpy", "matplotlib", "pydantic")


def provenance(
    seed: int, wall_time_s: float, file_digests: Mapping[str, str], profile: Profile | None = None
) -> dict[str, Any]:
    """Return the content of ``provenance.json``: the only file of a result that may differ.

    wall_time_s is measured by the caller; file_digests maps each input file to its sha256; profile
    says where the time went, if that was measured.
    """
    return {
        **({"profile": profile.as_json()} if profile is not None else {}),
        "files": dict(file_digests),
        "git": _git(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "seed": seed,
        "versions": {name: _version(name) for name in _PACKAGES},
        "wall_time_s": wall_time_s,
    }


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, in hex. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    """Commit and dirty flag of the checkout that this package runs from; None in an installation.

    A repository that merely contains the environment of the user is not ours: the package must lie
    directly under the top folder.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    commit = _git_output(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(_git_output(root, "status", "--porcelain"))}


def _git_output(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
