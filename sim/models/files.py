"""Finding and parsing model files. Nothing read here is ever executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sim.configs_dir import configs_dir
from sim.errors import ConfigError

MAX_FILE_BYTES = 16 * 2**20


def known_models() -> list[str]:
    """Return the stems of the files under ``configs/models``, sorted."""
    return sorted(path.stem for path in (configs_dir() / "models").glob("*.json"))


def find_model(name_or_path: str) -> Path:
    """Return the file of a stem, a hub id (``org/name``), or a path to a file or its folder.

    Raises
    ------
    ConfigError
        Nothing of that name exists; the nearest known name is suggested.
    """
    stem = name_or_path.replace("/", "--")
    if stem in known_models():
        return configs_dir() / "models" / f"{stem}.json"
    path = _existing(name_or_path)
    if path is None:
        raise _unknown(name_or_path, stem)
    return path


def _unknown(name: str, stem: str) -> ConfigError:
    """A name cut short means what it begins; any other the nearest by spelling."""
    longer = [known for known in known_models() if stem and known.startswith(stem)]
    if not longer:
        return ConfigError.unknown("model", name, known_models())
    others = [known for known in known_models() if known not in longer]
    return ConfigError.one("model", name, f"known: {', '.join([*longer, *others])}", longer[0])


def _existing(text: str) -> Path | None:
    if not text:
        return None
    try:
        path = Path(text).expanduser()
        inside = path / "config.json"
        candidates = [path, inside] if path.suffix == ".json" else [inside, path]
        return next((p for p in candidates if p.is_file()), None)
    except (OSError, ValueError, RuntimeError):
        return None  # a name that no file can have


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or raise a ConfigError that names the file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError.one(str(path), "too large", f"at most {MAX_FILE_BYTES} bytes")
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError.one(
            str(path), error.strerror or "unreadable", "a readable file"
        ) from None
    except RecursionError:
        raise ConfigError.one(str(path), "nested too deeply", "a config.json") from None
    except ValueError as error:
        raise ConfigError.one(str(path), str(error), "JSON in UTF-8") from None
    if not isinstance(data, dict):
        raise ConfigError.one(str(path), type(data).__name__, "a JSON object")
    return data


def model_name(path: Path) -> str:
    """Return the name of a model file: its stem, or the folder of a plain ``config.json``."""
    folder = path.resolve().parent.name
    return folder if folder and path.name == "config.json" else path.stem
