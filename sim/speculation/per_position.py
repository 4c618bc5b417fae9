"""A rate for each place of a draft, as vLLM's log reports them."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field

from sim.config import Strict
from sim.errors import ConfigError
from sim.speculation.acceptance_model import AcceptanceModel

_KEY = "speculative.acceptance.params.rates"


class PerPositionParams(Strict):
    """Rates by place.

    rates : ratios
        share of verifications in which the first, the first two, ... drafts were accepted: what
        vLLM's log calls per-position acceptance rate
    """

    rates: list[Annotated[float, Field(ge=0, le=1)]]


def rates(params: PerPositionParams, num_drafts: int) -> tuple[float, ...]:
    """Return the first ``num_drafts`` rates; ConfigError if there are fewer or they rise."""
    given = params.rates
    if len(given) < num_drafts:
        raise ConfigError.one(_KEY, f"{len(given)} rates", f"one for each of {num_drafts} drafts")
    if any(later > earlier for earlier, later in pairwise(given)):
        raise ConfigError.one(_KEY, given, "rates that do not rise: a draft needs those before it")
    return tuple(given[:num_drafts])


PER_POSITION = AcceptanceModel(
    "per_position", "a rate for each place, as vLLM reports it", PerPositionParams, rates
)
