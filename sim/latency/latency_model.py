"""What a step-time model is: parameters with defaults, and a function that assembles it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.config import Strict
from sim.latency.work import StepTime

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.latency.step_time_state import StepTimeState
    from sim.layout.plan import Layout
    from sim.models import ModelConfig


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """One entry of ``LATENCY_MODELS``.

    ``build(params, model, hardware, layout)`` returns a ``StepTime``. It must be positive, it must
    not fall when a step gets more work of any kind, and it must not depend on the order of the
    requests in a step.

    ``compiled``, with the same arguments, returns the same model for the compiled engine: equal
    nanoseconds for every step that the layout's limits allow, or None where numbers would not fit.
    A model without it runs on the Python engine only.
    """

    name: str
    summary: str
    params: type[Strict]
    build: Callable[[Any, ModelConfig, Hardware, Layout], StepTime]
    compiled: Callable[[Any, ModelConfig, Hardware, Layout], StepTimeState | None] | None = None
