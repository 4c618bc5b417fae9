"""Each draft is accepted with the same probability, if all before it are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.config import Strict
from sim.speculation.acceptance_model import AcceptanceModel


class GeometricParams(Strict):
    """One number for all drafts.

    rate : ratio
        probability that a draft is accepted when those before it are; 0.7 is an assumption of a
        plausible size, not measured
    """

    rate: Annotated[float, Field(ge=0, le=1)] = 0.7


def rates(params: GeometricParams, num_drafts: int) -> tuple[float, ...]:
    """Return rate, rate^2, ... Source: Leviathan and others 2023 (arXiv 2211.17192), section 3.1.

    >>> rates(GeometricParams(rate=0.5), 3)
    (0.5, 0.25, 0.125)
    """
    return tuple(params.rate**place for place in range(1, num_drafts + 1))


GEOMETRIC = AcceptanceModel(
    "geometric", "each draft is accepted with one probability", GeometricParams, rates
)
