"""``kvsim verify``: the same scenario on our scheduler and on vLLM's own, step by step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.options import RUN_OPTIONS, named_as_flags, scenario_keys, with_options
from sim.cli.run import EXIT_FAILED, check_workload_flags, chosen_scenario

if TYPE_CHECKING:
    from sim.config import Scenario
    from sim.simulation import Assembly
    from sim.vllm.verification import Verification

_LINES = (
    ("requests", "requests"),
    ("steps", "steps of the scheduler"),
    ("calls", "calls, after each of which outputs, events and statistics were compared"),
    ("events", "KV events"),
    ("states", "whole states: tables, holders, free queue, cache index"),
    ("blocks", "blocks in them"),
)


@with_options(RUN_OPTIONS)
def verify(
    scenario_file: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="A file, or a name (kvsim list scenarios); options override its keys.",
        ),
    ] = None,
    every: Annotated[
        int,
        typer.Option(
            metavar="STEPS",
            min=0,
            help="Compare the whole state every so many steps; 0: at the end. Outputs, events "
            "and statistics are compared at each.",
        ),
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="The counts as JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    **flags: Any,
) -> int:
    """Compare each step with vLLM's own scheduler; stop at the first difference."""
    keys = scenario_keys(RUN_OPTIONS, flags)
    named = keys if scenario_file else dict.fromkeys(option.key for option in RUN_OPTIONS)
    with named_as_flags(RUN_OPTIONS, named):
        scenario = chosen_scenario("kvsim verify", scenario_file, keys)
        check_workload_flags(scenario, keys)
        return _verify(scenario, every, as_json=as_json, quiet=quiet)


def _verify(scenario: Scenario, every: int, *, as_json: bool, quiet: bool) -> int:
    from sim.vllm.choice import check_verification
    from sim.vllm.difference import Divergence

    check_verification(scenario)
    made: list[Verification] = []
    try:
        _simulate(scenario, partial(_build, made, every), quiet)
    except Divergence as difference:
        consoles.show_text(f"{difference}\n")
        return EXIT_FAILED
    (verification,) = made
    if not verification.counts.get("requests"):
        consoles.show_text("nothing was compared: no request got as far as the scheduler\n")
        return EXIT_FAILED
    if as_json:
        consoles.show_json({"schema": 1, "differences": 0, "compared": verification.counts})
    else:
        consoles.show_text("".join(f"{line}\n" for line in _success(verification.counts)))
    return 0


def _build(made: list[Verification], every: int, assembly: Assembly) -> Verification:
    from sim.vllm.verification import Verification

    scenario = assembly.scenario
    verification = Verification(
        assembly.layout,
        scenario.scheduler.watermark,
        scenario.cache.prefix_cache_retention_interval,
        every,
    )
    made.append(verification)
    return verification


def _simulate(scenario: Scenario, verification: Any, quiet: bool) -> None:
    from sim.progress import progress_on
    from sim.simulation import simulate

    if quiet:
        simulate(scenario, verification=verification)
        return
    with progress_on(consoles.console(stderr=True)) as progress:
        simulate(scenario, progress=progress, verification=verification)


def _success(counts: dict[str, int]) -> list[str]:
    from sim.vllm import VERSION

    width = max(len(f"{counts.get(key, 0):,}") for key, _ in _LINES)
    lines = [f"{counts.get(key, 0):>{width},}  {text}" for key, text in _LINES]
    return [f"equal to vLLM {VERSION} in everything that was compared", *lines]
