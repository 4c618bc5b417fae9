"""What a model of acceptance is: parameters, and the rate at which each draft is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.config import Strict


@dataclass(frozen=True, slots=True)
class AcceptanceModel:
    """One entry of ``ACCEPTANCE_MODELS``.

    ``rates(params, num_drafts)`` returns, for each draft of a step, the probability that it is
    accepted and so are all before it: numbers from 0 to 1 that do not rise. One token more than
    that is always sampled.
    """

    name: str
    summary: str
    params: type[Strict]
    rates: Callable[[Any, int], tuple[float, ...]]
