"""``kvsim layout``: how the layers of a model share the KV memory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.options import LAYOUT_OPTIONS, named_as_flags, scenario_keys, with_options
from sim.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.config import Scenario
    from sim.layout.memory_estimate import MemoryEstimate
    from sim.layout.plan import LayoutSettings
    from sim.layout_scenario import LayoutRequest

EXIT_DISAGREES = 1


@with_options(LAYOUT_OPTIONS)
def layout(
    model: Annotated[
        str | None, typer.Argument(help="Model name, hub id or path of a config.json.")
    ] = None,
    specs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Explicit layers instead of a model.")
    ] = None,
    from_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with the lines of a vLLM start-up log."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    **flags: Any,
) -> int:
    """Show groups, padding, block sizes, blocks, tokens and concurrency of a model."""
    from sim.layout.startup_log import load_startup_log
    from sim.layout_scenario import LayoutRequest

    log = load_startup_log(from_log) if from_log else None
    given = scenario_keys(LAYOUT_OPTIONS, flags)
    with named_as_flags(LAYOUT_OPTIONS, given):
        if specs is None and model is None and log is not None:
            model = log.model
        if (specs is None) == (model is None):
            raise _one_of_the_two(model)
        request = LayoutRequest.of(model, specs, given)
        if log is not None:
            return _compare(request, log, as_json)
        return _show(request, as_json)


def _one_of_the_two(model: str | None) -> ConfigError:
    if model is None:
        return ConfigError.one("MODEL", "missing", "a value is needed")
    return ConfigError.one("--specs", f"with MODEL {model}", "one of the two")


def _show(request: LayoutRequest, as_json: bool) -> int:
    from sim.layout.drawing import layout_drawing
    from sim.layout.report import layout_json, layout_renderables

    plan, estimate = request.plan(), request.estimate()
    if as_json:
        parts = {"memory_estimate": {**asdict(estimate), "kv": estimate.kv}} if estimate else {}
        consoles.show_json(layout_json(plan) | parts)
        return 0
    from rich.text import Text

    head = [_estimate_table(estimate)] if estimate else []
    *tables, log_lines = layout_renderables(plan)
    consoles.show([*head, *tables, Text(layout_drawing(plan)), Text(), log_lines])
    return 0


def _estimate_table(estimate: MemoryEstimate) -> RenderableType:
    from rich.table import Table

    from sim.layout.memory_estimate import estimate_rows

    table = Table(title="KV memory of one rank: an estimate", show_header=False)
    table.add_column("what")
    table.add_column("bytes", justify="right")
    for row in estimate_rows(estimate):
        table.add_row(*row)
    return table


def _compare(request: LayoutRequest, log: Any, as_json: bool) -> int:
    from sim.layout.log_report import explanation_json, explanation_renderables

    explanation = request.explain(log)
    if as_json:
        consoles.show_json(explanation_json(explanation, request.name))
    else:
        consoles.show(explanation_renderables(explanation, request.name))
    return 0 if explanation.comparison.agrees else EXIT_DISAGREES


def layout_settings(scenario: Scenario) -> LayoutSettings:
    """Return the part of a scenario that decides about the layout."""
    from sim import layout_scenario

    return layout_scenario.layout_settings(scenario)
