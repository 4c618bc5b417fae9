"""vLLM's own manager and its own scheduler on the first requests of the trace.

    .venv-oracle/bin/python -m benchmarks.scale.vllm_run MODEL TRACE --loop manager

All requests are there from the start and ``--concurrency`` of them run at a time: lookup, chunks of
at most 8192 tokens, one token at a time, free. ``manager``: the calls of KVCacheManager, the loop
around them taken off (``bench_reference``). ``scheduler``: ``schedule`` and ``update_from_output``.
Requests are made before; ``hashing_s`` is what hashing the blocks of their prompts took.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from time import process_time

from benchmarks.bench_reference import LOOPS, own_time
from benchmarks.layouts import Pool, layout_pool
from benchmarks.scale.cases import requests, scenario
from benchmarks.scale.timings import repeated, tell
from benchmarks.stream import Turn
from benchmarks.vllm_side import VllmSide
from sim.request import RequestSpec
from sim.simulation import assemble

BUDGET = 8192


def measured(
    loop: str, pool: Pool, specs: list[RequestSpec], own_s: Callable[[], float]
) -> dict[str, float]:
    """Return the times of one pass."""
    gc.collect()
    side = VllmSide(pool, specs)
    # As vLLM's engine does: what stands when the work begins is not looked at again.
    gc.freeze()
    begin = process_time()
    inside_s, steps = LOOPS[loop](side, pool, stream_of(specs), None)
    whole_s = process_time() - begin
    gc.unfreeze()
    loop_s = inside_s - own_s()
    cpu_s = side.hashing_s + loop_s
    return {"hashing_s": side.hashing_s, "cpu_s": cpu_s, "whole_s": whole_s, "steps": steps}


def stream_of(specs: list[RequestSpec]) -> list[tuple[int, Turn]]:
    """All arrive before the first step; the loop admits as many as may run."""
    return [(0, Turn(spec, 0)) for spec in specs]


def main() -> None:
    """Measure, and tell the caller."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("trace")
    parser.add_argument("--loop", choices=LOOPS, default="manager")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    assembly = assemble(scenario(options.model, options.trace, options.requests))
    specs = requests(assembly.scenario, options.requests)
    pool = layout_pool(assembly.layout, BUDGET, options.concurrency)
    own_s = own_time(pool, specs, stream_of(specs)) if options.loop == "manager" else lambda: 0.0
    values = repeated(lambda: measured(options.loop, pool, specs, own_s), options.repeats)
    tell(**values, requests=[len(specs)])


if __name__ == "__main__":
    main()
