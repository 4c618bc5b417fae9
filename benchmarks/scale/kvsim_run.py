"""Our engines: whole runs of ``simulate``, and what of them is spent inside the core.

    python -m benchmarks.scale.kvsim_run MODEL TRACE --core compiled [--requests N]

A first run of 20 requests loads what is loaded once, compiled code among it; its time is told.
The core is ``add`` (without the naming of prefixes), ``advance`` and ``complete``: lookup,
scheduling, allocation, step times and the rows of steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

from benchmarks.block_operations import compiled_operations
from benchmarks.scale.cases import scenario
from benchmarks.scale.timings import Clock, repeated, tell
from sim.config import Scenario
from sim.simulation import simulate

CORES = {
    "python": ("sim.engine_core", "EngineCore"),
    "compiled": ("sim.engine_core_compiled", "CompiledEngineCore"),
}
DOORS = ("add", "advance", "complete")


class CoreClock:
    """CPU seconds inside the methods of a class of cores, less those of what they call back."""

    def __init__(self, core: type) -> None:
        self.inside_s = 0.0
        self.last: Any = None  # the core that was called last
        for name in DOORS:
            setattr(core, name, self._timed(getattr(core, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(core: Any, *args: Any) -> Any:
            self.last = core
            begin = process_time()
            try:
                return method(core, *(self._outside(a) if callable(a) else a for a in args))
            finally:
                self.inside_s += process_time() - begin

        return timed

    def _outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            begin = process_time()
            try:
                return function(*args)
            finally:
                self.inside_s -= process_time() - begin

        return timed


def measured(of: Scenario, core: CoreClock | None) -> dict[str, float]:
    """Return times and counts of one run, with its metrics and tables, nothing written."""
    clock = Clock()
    if core is not None:
        core.inside_s = 0.0
    with clock.running():
        result = simulate(of)
    return {
        "wall_s": clock.wall_s,
        "cpu_s": clock.cpu_s,
        "core_s": core.inside_s if core is not None else 0.0,
        "steps": len(result.steps),
        "requests": result.metrics["requests_finished"],
    }


def main() -> None:
    """Measure, and tell the caller."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("trace")
    parser.add_argument("--core", choices=CORES, default="python")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--arrival-scale", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    common = (options.model, options.trace)
    begin = perf_counter()
    simulate(scenario(*common, 20, options.arrival_scale, options.core))
    first_run_s = perf_counter() - begin
    whole = scenario(*common, options.requests, options.arrival_scale, options.core)
    values = repeated(lambda: measured(whole, None), options.repeats)
    module, name = CORES[options.core]
    core = CoreClock(getattr(import_module(module), name))
    core_s = measured(whole, core)["core_s"]
    changes = compiled_operations(core.last).changes if options.core == "compiled" else 0
    tell(**values | {"core_s": [core_s], "operations": [changes]}, first_run_s=first_run_s)


if __name__ == "__main__":
    main()
