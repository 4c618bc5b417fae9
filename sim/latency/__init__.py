"""Step-time models: what one engine step costs in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.config import Plugin, validated
from sim.latency.affine import AFFINE
from sim.latency.constant import CONSTANT
from sim.latency.latency_model import LatencyModel
from sim.latency.roofline import ROOFLINE
from sim.latency.work import StepTime
from sim.registry import Registry

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.latency.step_time_state import StepTimeState
    from sim.layout.plan import Layout
    from sim.models import ModelConfig

LATENCY_MODELS: Registry[LatencyModel] = Registry(
    "latency.name",
    {"constant": CONSTANT, "affine": AFFINE, "roofline": ROOFLINE},
)


def build_step_time(
    plugin: Plugin, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTime:
    """Return the step-time function that a scenario names, its parameters checked.

    Raises ConfigError for an unknown model, an unknown parameter, or a value out of range.
    """
    entry = LATENCY_MODELS[plugin.name]
    params = validated(entry.params, plugin.params, "latency.params")
    return entry.build(params, model, hardware, layout)


def build_step_time_state(
    plugin: Plugin, model: ModelConfig, hardware: Hardware, layout: Layout
) -> StepTimeState | None:
    """Return the same for the compiled engine; None if the model has no such form for this layout.

    Raises as ``build_step_time`` does.
    """
    entry = LATENCY_MODELS[plugin.name]
    if entry.compiled is None:
        return None
    params = validated(entry.params, plugin.params, "latency.params")
    return entry.compiled(params, model, hardware, layout)
