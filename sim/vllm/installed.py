"""Whether vLLM is there, and how to get it."""

from __future__ import annotations

from importlib import metadata

from sim.errors import ConfigError

VERSION = "0.25.1"
RECIPE = """\
python3 -m venv .venv-oracle
.venv-oracle/bin/pip install torch==2.13.0
.venv-oracle/bin/pip install --no-deps vllm==0.25.1
.venv-oracle/bin/pip install --no-deps -r docs/vllm-requirements.txt
.venv-oracle/bin/pip install -e .
"""


def is_installed() -> bool:
    """Return whether the version of vLLM that is simulated is installed. Imports nothing of it."""
    return installed_version() == VERSION


def installed_version() -> str | None:
    """Return the version of vLLM that is installed, None if there is none."""
    try:
        return metadata.version("vllm").partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def require_installed(key: str, value: object) -> None:
    """Raise ConfigError, with the recipe, unless this version of vLLM is installed."""
    if is_installed():
        return
    found = installed_version()
    there = f"here is {found}" if found else "it is not installed"
    recipe = " && ".join(RECIPE.splitlines())
    allowed = f"needs vLLM {VERSION}, {there}; on a machine without a GPU (docs/vllm.md): {recipe}"
    raise ConfigError.one(key, value, allowed)
