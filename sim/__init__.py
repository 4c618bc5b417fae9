"""A discrete-event simulator for the KV cache of hybrid language models.

The names below are loaded when they are first used, so that ``import sim`` costs nothing.
"""

from importlib import import_module as _import_module

_HOME = {
    "ConfigError": "sim.errors",
    "Layout": "sim.layout.plan",
    "LayoutSettings": "sim.layout.plan",
    "RunResult": "sim.results",
    "Scenario": "sim.config",
    "SimError": "sim.errors",
    "known_models": "sim.models",
    "load_model": "sim.models",
    "load_scenario": "sim.scenario_file",
    "plan_layout": "sim.layout.plan",
    "identify": "sim.simulation",
    "scenario_from": "sim.scenario_file",
    "scenario_yaml": "sim.scenario_file",
    "simulate": "sim.simulation",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    return getattr(_import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
