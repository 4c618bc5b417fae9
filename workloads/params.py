"""What the parameter sections of all workloads have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NS_PER_S = 1_000_000_000

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Tokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]


class Params(BaseModel):
    """A section of parameters: unknown keys are errors, values do not change.

    A second copy of ``sim.config.Strict``, since ``workloads`` knows ``sim.request`` only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
