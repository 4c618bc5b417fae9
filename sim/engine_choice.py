"""Which engine runs a scenario: the compiled one where it can, with one line where it cannot."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sim.compat import fixes_of
from sim.config import Scenario
from sim.core.attention import manager_class
from sim.core.attention.chunked_local import ChunkedLocalAttentionManager
from sim.core.attention.full import FullAttentionManager
from sim.core.attention.mamba import MambaManager
from sim.core.attention.sliding_window import SlidingWindowManager
from sim.errors import ConfigError
from sim.latency import build_step_time_state

if TYPE_CHECKING:
    from sim.hardware import Hardware
    from sim.latency.step_time_state import StepTimeState
    from sim.layout.plan import Layout
    from sim.models import ModelConfig

_COMPILED_KINDS = {
    FullAttentionManager,
    SlidingWindowManager,
    ChunkedLocalAttentionManager,
    MambaManager,
}
_COMPILED_QUEUES = {"lru"}


def choose_step_time(
    scenario: Scenario, model: ModelConfig, hardware: Hardware, layout: Layout
) -> tuple[StepTimeState | None, str | None]:
    """Return the compiled engine's step-time model, or None and why that engine does not run it.

    Neither a model nor a reason: ``engine.core`` asks for the Python engine.

    Raises
    ------
    ConfigError
        The compiled engine is asked for and cannot run the scenario.
    """
    core = scenario.engine.core
    if core == "python":
        return None, None
    state = None
    reason = next(_reasons(scenario, layout), None)
    if reason is None:
        state = build_step_time_state(scenario.latency, model, hardware, layout)
        if state is None:
            name = scenario.latency.name
            reason = f"the step-time model {name} has no compiled form for this layout"
    if reason is not None and core == "compiled":
        raise not_compiled(reason)
    return state, reason


def not_compiled(reason: str) -> ConfigError:
    """Return the error where the compiled engine is asked for and cannot run."""
    return ConfigError.one("engine.core", "compiled", f"auto or python: {reason}")


def _reasons(scenario: Scenario, layout: Layout) -> Iterator[str]:
    """Yield what keeps the compiled engine from a scenario."""
    yield from _of_the_installation(scenario.engine.core == "compiled")
    engine, scheduler = scenario.engine, scenario.scheduler
    for key, is_set in (
        ("engine.manager vllm", engine.manager != "native"),
        ("engine.reasons", engine.reasons),
        ("engine.kv_events", engine.kv_events is not None),
        ("cache.kv_cache_metrics", scenario.cache.kv_cache_metrics),
        ("engine.check_every", engine.check_every > 0),
        ("speculative decoding", scenario.speculative.num_speculative_tokens > 0),
        ("scheduler.max_loras", scheduler.max_loras > 0),
        ("compat: its rules are vLLM's as they are", bool(fixes_of(scenario.compat))),
        (f"engine.free_queue {engine.free_queue}", engine.free_queue not in _COMPILED_QUEUES),
    ):
        if is_set:
            yield f"it has no {key}"
    for group in layout.kv_cache_config.kv_cache_groups:
        if manager_class(group.kv_cache_spec) not in _COMPILED_KINDS:
            yield f"it has no {type(group.kv_cache_spec).__name__} layers"


def _of_the_installation(is_asked_for: bool) -> Iterator[str]:
    """Numba may be missing; switched off, who asks for the loops gets them in plain Python."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        if not is_asked_for:
            yield "NUMBA_DISABLE_JIT is set"
    elif importlib.util.find_spec("numba") is None:
        yield "Numba is not installed (pip install 'hybrid-kv-sim[fast]')"


def fallback_note(reason: str) -> str:
    """Return the line that says which engine runs instead."""
    return f"the Python engine runs this, not the compiled one: {reason}"
