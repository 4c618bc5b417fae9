"""Every step takes the same time, whatever it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sim.config import Strict
from sim.latency import step_time_state as kinds
from sim.latency.latency_model import LatencyModel
from sim.latency.step_time_state import StepTimeState, step_time_state
from sim.latency.work import StepTime, StepWork
from sim.units import NS_PER_MS

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.layout.plan import Layout
    from sim.models import ModelConfig


class ConstantParams(Strict):
    """The one cost there is.

    step_ms : milliseconds of every step; 20 is a round number for hand calculation, not measured
    """

    step_ms: Annotated[float, Field(gt=0, le=1e9)] = 20.0


def build(
    params: ConstantParams, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTime:
    """Return a function that ignores the work. Source: ours, for tests and hand calculation."""
    step_ns = _step_ns(params)

    def step_time(work: StepWork) -> int:
        return step_ns

    return step_time


def _step_ns(params: ConstantParams) -> int:
    return max(1, round(params.step_ms * NS_PER_MS))


def compiled(
    params: ConstantParams, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTimeState:
    """Return the one number as a state."""
    return step_time_state(kinds.CONSTANT, {"step_ns": _step_ns(params)})


CONSTANT = LatencyModel("constant", "every step takes step_ms", ConstantParams, build, compiled)
