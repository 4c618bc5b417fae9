"""``kvsim layout``: how the layers of a model share the KV memory."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.options import LAYOUT_OPTIONS, named_as_flags, scenario_keys, with_options

if TYPE_CHECKING:
    from sim.config import Scenario
    from sim.layout.plan import LayoutSettings


@with_options(LAYOUT_OPTIONS)
def layout(
    model: Annotated[str, typer.Argument(help="Model name, hub id or path of a config.json.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    **flags: Any,
) -> int:
    """Show groups, padding, block sizes, blocks, tokens and concurrency of a model."""
    from sim.layout.plan import plan_layout
    from sim.layout.report import layout_json, layout_renderables
    from sim.models import load_model
    from sim.scenario_file import scenario_from

    keys = {"model": model, **scenario_keys(LAYOUT_OPTIONS, flags)}
    with named_as_flags(LAYOUT_OPTIONS, keys):
        scenario = scenario_from(keys)
        plan = plan_layout(load_model(scenario.model), layout_settings(scenario))
    if as_json:
        consoles.show_json(layout_json(plan))
    else:
        consoles.show(layout_renderables(plan))
    return 0


def layout_settings(scenario: Scenario) -> LayoutSettings:
    """Return the part of a scenario that decides about the layout."""
    from sim.layout.plan import LayoutSettings

    sections = {**scenario.scheduler.model_dump(), **scenario.cache.model_dump()}
    return LayoutSettings(**{f.name: sections[f.name] for f in fields(LayoutSettings)})
