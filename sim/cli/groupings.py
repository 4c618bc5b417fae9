"""``kvsim groupings``: every grouping rule and memory plan on the same models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.options import LAYOUT_OPTIONS, named_as_flags, scenario_keys, with_options
from sim.errors import ConfigError

if TYPE_CHECKING:
    from sim.layout.comparison import Comparison
    from sim.layout.grouping import LengthDistribution

LENGTHS = "--lengths"
ONLY = "--only"

Models = Annotated[
    list[str], typer.Argument(metavar="MODEL...", help="Model names, hub ids or config.json paths.")
]
Lengths = Annotated[
    str | None,
    typer.Option(
        LENGTHS,
        metavar="LENGTH*TIMES+...",
        help="Lengths of the requests, such as 4096*3+131072  [default: the longest]",
        show_default=False,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        ONLY,
        metavar="NAME[:PARAMETER=VALUE,...]",
        help="Only this rule or plan; repeatable  [default: all]",
        show_default=False,
    ),
]


@with_options(LAYOUT_OPTIONS)
def groupings(
    models: Models,
    lengths: Lengths = None,
    only: Only = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    **flags: Any,
) -> int:
    """Compare all grouping rules and memory plans: groups, padding, tokens, and where bytes go."""
    from sim.layout.comparison_report import comparison_json, comparison_renderables

    asked = Question(flags, lengths, only or ())
    compared = [asked.compare(model) for model in models]
    if as_json:
        consoles.show_json(comparison_json(compared))
        return 0
    for comparison in compared:
        consoles.show(comparison_renderables(comparison))
    return 0


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be compared. flags: the options of LAYOUT_OPTIONS; only: names, or all."""

    flags: Mapping[str, Any]
    lengths: str | None = None
    only: Sequence[str] = ()

    @property
    def given(self) -> list[str]:
        """The options that were used, by their first spelling."""
        used = [o.names[0] for o in LAYOUT_OPTIONS if self.flags[o.parameter] not in (None, [])]
        return used + [LENGTHS] * (self.lengths is not None) + [ONLY] * bool(self.only)

    def compare(self, model: str, names: Sequence[str] | None = None) -> Comparison:
        """Return the comparison of one model; ``names`` overrides what was asked for."""
        from sim.layout.comparison import compare
        from sim.layout_scenario import LayoutRequest

        keys = scenario_keys(LAYOUT_OPTIONS, self.flags)
        chosen = names if names is not None else self.only or None
        with named_as_flags(LAYOUT_OPTIONS, keys):
            request = LayoutRequest.of(model, None, keys)
            lengths = _read_lengths(self.lengths)
            return compare(request.model, request.settings(), names=chosen, lengths=lengths)


def _read_lengths(text: str | None) -> LengthDistribution | None:
    from sim.layout.grouping import LengthDistribution

    if text is None:
        return None
    try:
        return LengthDistribution.read(text)
    except ValueError as error:
        raise ConfigError.one(LENGTHS, text, str(error)) from None
