"""Where the files under ``configs/`` are: beside the checkout, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

from sim.errors import SimError


def configs_dir() -> Path:
    """Return the folder that holds ``models/``, ``hardware/`` and ``scenarios/``.

    A wheel carries it as ``sim/_configs``; in a checkout it is ``configs/`` next to ``sim/``.

    Raises
    ------
    SimError
        Neither exists: the installation is broken.
    """
    package = Path(__file__).resolve().parent
    places = (package / "_configs", package.parent / "configs")
    for place in places:
        if place.is_dir():
            return place
    raise SimError(f"the package's configs are missing: looked at {places[0]} and {places[1]}")
