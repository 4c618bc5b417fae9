"""Where results are, by folder or by run id."""

from __future__ import annotations

from pathlib import Path

from sim.errors import ConfigError

RUNS = Path("runs")


def find_run(text: str) -> Path:
    """Return the folder of a complete result: a path, or the name of a folder under ``runs``.

    Raises ConfigError where there is none; runs that are there are listed, the nearest first.
    """
    from sim.results import is_complete

    for path in (Path(text), RUNS / text):
        if is_complete(path):
            return path
    if Path(text).is_dir():
        raise ConfigError.one("RUN", text, "not a folder with a result")
    if "/" in text or not RUNS.is_dir():
        raise ConfigError.one("RUN", text, "a folder that holds a complete result")
    raise ConfigError.unknown("RUN", text, sorted(p.name for p in RUNS.glob("[!.]*")))
