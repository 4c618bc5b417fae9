"""Accelerators: peak rates from data sheets, and how much of them we assume is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from sim.config import Bytes, Strict, validated
from sim.configs_dir import configs_dir
from sim.errors import ConfigError
from sim.scenario_file import parse_yaml, read_text

Rate = Annotated[float, Field(gt=0, le=1e30)]
Share = Annotated[float, Field(gt=0, le=1)]


class Hardware(Strict):
    """One device, as a step-time model sees it.

    flops_per_s: peak dense rate [FLOP/s] by number format (``bf16``, ``fp8``, ...), without
    structured sparsity; bytes_per_s: peak memory bandwidth; memory_bytes: all of the memory.
    compute_efficiency and memory_efficiency are the shares of both peaks that a step reaches: they
    are assumptions. sources says where each peak comes from.
    """

    name: str
    description: str
    flops_per_s: Annotated[dict[str, Rate], Field(min_length=1)]
    bytes_per_s: Rate
    memory_bytes: Bytes
    compute_efficiency: Share
    memory_efficiency: Share
    sources: Annotated[list[str], Field(min_length=1)]
    assumptions: Annotated[list[str], Field(min_length=1)]


def known_hardware() -> list[str]:
    """Return the names of the hardware files that come with the project, sorted."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def load_hardware(name_or_path: str) -> Hardware:
    """Return a device by its name under ``configs/hardware``, or read the file at a path.

    Text that ends in ``.yaml`` or ``.yml`` or holds a ``/`` is a path, all other text a name.

    Raises
    ------
    ConfigError
        Unknown name (the nearest one is suggested), unreadable file, unknown or missing key, value
        out of range.
    """
    is_path = _is_path(name_or_path)
    label = name_or_path if is_path else f"hardware {name_or_path}"
    return _read(find_hardware(name_or_path), label)


def find_hardware(name_or_path: str) -> Path:
    """Return the file of a device; ConfigError for an unknown name."""
    if _is_path(name_or_path):
        return Path(name_or_path)
    if name_or_path not in known_hardware():
        raise ConfigError.unknown("hardware", name_or_path, known_hardware())
    return _folder() / f"{name_or_path}.yaml"


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith((".yaml", ".yml"))


def _read(path: Path, key: str) -> Hardware:
    return validated(Hardware, parse_yaml(read_text(path), key), key)


def _folder() -> Path:
    return Path(configs_dir()) / "hardware"
