"""Random numbers of tokens with a stated mean."""

from __future__ import annotations

from math import exp, log1p, sqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from .params import Params, Tokens


class Lengths(Params):
    """A distribution of lengths in tokens, by its mean and coefficient of variation.

    distribution
        ``lognormal``: exp of a normal variable; long tail, as lengths in public traces have.
        ``uniform``: even between mean x (1 - sqrt(3) cv) and mean x (1 + sqrt(3) cv).
    mean : tokens
        of the distribution before rounding and before ``maximum``
    cv : ratio
        standard deviation over mean; 0 gives the mean always. ``uniform`` allows no more than
        1 / sqrt(3): beyond, lengths would be negative.
    maximum : tokens
        longer draws are cut to it; None = none are

    A draw is rounded to the nearest whole number and is at least 1.
    """

    distribution: Literal["lognormal", "uniform"] = "lognormal"
    mean: Annotated[float, Field(ge=1, le=1e9)]
    cv: Annotated[float, Field(ge=0, le=10)] = 0.0
    maximum: Tokens | None = None

    @field_validator("cv")
    @classmethod
    def _not_negative(cls, cv: float, info: ValidationInfo) -> float:
        if info.data.get("distribution") == "uniform" and cv * sqrt(3) > 1:
            raise ValueError("at most 1 / sqrt(3) = 0.577 with distribution uniform")
        return cv

    def draw(self, rng: np.random.Generator) -> int:
        """Return one length. Takes exactly one variate from ``rng``."""
        length = max(1, round(self._variate(rng)))
        return length if self.maximum is None else min(length, self.maximum)

    def _variate(self, rng: np.random.Generator) -> float:
        if self.distribution == "uniform":
            width = sqrt(3) * self.cv
            return self.mean * (1 + width * (2 * rng.random() - 1))
        variance = log1p(self.cv**2)  # of the logarithm
        normal = rng.standard_normal()
        return self.mean * exp(sqrt(variance) * normal - variance / 2)
