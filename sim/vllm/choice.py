"""Scenarios that can run on vLLM's own classes."""

from __future__ import annotations

from sim.compat import fixes_of
from sim.config import Scenario
from sim.errors import ConfigError, Problem
from sim.vllm.installed import require_installed


def check_vllm_manager(scenario: Scenario) -> None:
    """Raise ConfigError if a scenario with ``engine.manager: vllm`` cannot run, or not here."""
    engine = scenario.engine
    taken = [
        ("engine.reasons", engine.reasons),
        ("engine.kv_events", engine.kv_events),
        ("cache.kv_cache_metrics", scenario.cache.kv_cache_metrics),
    ]
    allowed = "nothing with engine.manager vllm: vLLM's own manager tells no observer"
    problems = [Problem(key, value, allowed) for key, value in taken if value]
    problems += _not_vllm(scenario)
    if problems:
        raise ConfigError(problems)
    require_installed("engine.manager", "vllm")


def check_verification(scenario: Scenario) -> None:
    """Raise ConfigError if vLLM's own scheduler cannot be asked along, or not here."""
    problems = _not_vllm(scenario)
    if scenario.engine.manager != "native":
        allowed = "native: verification compares it with vLLM's"
        problems.append(Problem("engine.manager", scenario.engine.manager, allowed))
    if problems:
        raise ConfigError(problems)
    require_installed("kvsim verify", "vllm")


def _not_vllm(scenario: Scenario) -> list[Problem]:
    """Return what makes the scenario decide otherwise than vLLM, on purpose."""
    problems = []
    if scenario.engine.free_queue != "lru":
        allowed = "lru, which is vLLM's order"
        problems.append(Problem("engine.free_queue", scenario.engine.free_queue, allowed))
    if fixes_of(scenario.compat):
        problems.append(Problem("compat", scenario.compat, "vllm-0.25.1: vLLM mends nothing"))
    return problems
