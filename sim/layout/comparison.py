"""All grouping rules and memory plans on one model, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from sim.errors import ConfigError
from sim.layout.grouping import (
    GROUPING_HEURISTICS,
    GroupingHeuristic,
    GroupingRule,
    LengthDistribution,
)
from sim.layout.grouping.cost import block_table_bytes, host_us_per_step
from sim.layout.plan import prepare_layers
from sim.layout.plans import MEMORY_PLANS, MemoryPlan, PlanInput, Planned
from sim.layout.plans.grouped import planned_by_engine
from sim.layout.plans.steady_state import steady_state
from sim.layout.settings import AUTO_FIT, LayoutSettings, check_settings
from sim.models.model_config import ModelConfig
from sim.profiles import VLLM_0_25_1, Profile

_LOGGED = re.compile(r"Add \d+ padding layers, may waste at most ([\d.]+)% KV cache memory")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one rule or plan makes of a model.

    missing_layers: padding slots, against the longest real group. idle_bytes: what they cost a
    request of average length; idle_share, page_padding_share: of all that it holds, each group
    weighted with the most blocks it may hold. tokens, concurrency: at the maximum model length.
    requests, parts: how many fit in the steady state, and the memory's parts in bytes then; they
    sum to it. recurrent_floor_bytes: what a request takes before its first token.
    block_table_bytes (of one request) and host_us_per_step: the modelled cost of the groups.
    logged_percents: what the engine's start-up warnings say about padding, one for each type with
    any: padding layers by layers of the type, so a bound for that type, whatever it holds.
    """

    num_groups: int
    group_size: int
    missing_layers: int
    idle_bytes: Fraction
    idle_share: Fraction
    page_padding_share: Fraction
    tokens: int
    concurrency: float
    requests: int
    parts: dict[str, int]
    recurrent_floor_bytes: int
    block_table_bytes: int
    host_us_per_step: int
    logged_percents: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One rule or plan: its figures, or in whose words it refuses the model."""

    name: str
    is_plan: bool
    figures: Figures | None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of one model."""

    model: str
    settings: LayoutSettings
    lengths: LengthDistribution
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """Return the row of a rule or plan by its name."""
        return next(row for row in self.rows if row.name == name)


def all_names() -> list[str]:
    """Return every rule, then every plan."""
    return [*GROUPING_HEURISTICS, *MEMORY_PLANS]


def compare(
    model: ModelConfig,
    settings: LayoutSettings,
    *,
    names: Iterable[str] | None = None,
    lengths: LengthDistribution | None = None,
    profile: Profile = VLLM_0_25_1,
) -> Comparison:
    """Return every rule and plan on a model, or those that ``names`` lists (with parameters).

    lengths: of the requests; the maximum length of a request where None. Rules that weigh lengths
    get them too, unless their own parameter says otherwise.

    Raises
    ------
    ConfigError
        Settings out of range, an unknown name or parameter. What a rule, a plan or the engine
        refuses about the model is a value in its row.
    """
    chosen = list(all_names() if names is None else names)
    for name in chosen:
        _entry(name)
    check_settings(settings, model.max_model_len)
    if settings.max_model_len == AUTO_FIT:
        allowed = "a number of tokens: rules and plans are compared at one length"
        raise ConfigError.one("scheduler.max_model_len", AUTO_FIT, allowed)
    longest = settings.max_model_len or model.max_model_len
    if lengths is not None:
        lengths.check(longest, "lengths")
    try:
        given = plan_input(model, settings, lengths, profile)
    except ConfigError as error:
        own = lengths or LengthDistribution.of([(longest, 1)])
        refusal = str(error)
        rows = tuple(Row(name, is_plan(name), None, refusal) for name in chosen)
        return Comparison(model.name, settings, own, rows)
    return compare_specs(model.name, given, chosen)


def plan_input(
    model: ModelConfig,
    settings: LayoutSettings,
    lengths: LengthDistribution | None,
    profile: Profile,
) -> PlanInput:
    """Return a model's layers as planning starts from them; ConfigError as in planning itself."""
    layers = prepare_layers(model, settings, profile)
    limits = layers.limits
    own = lengths or LengthDistribution.of([(limits.max_model_len, 1)])
    own.check(limits.max_model_len, "lengths")
    return PlanInput(
        layers.specs_by_worker,
        layers.settings,
        limits,
        model.max_model_len,
        own,
        profile,
        settings.block_size,
    )


def compare_specs(model: str, given: PlanInput, names: Iterable[str] | None = None) -> Comparison:
    """Return rules and plans on given layers; ``model`` names them."""
    chosen = all_names() if names is None else names
    rows = tuple(_row(name, given) for name in chosen)
    return Comparison(model, given.settings, given.lengths, rows)


def is_plan(name: str) -> bool:
    """Return whether a name, with or without parameters, is a memory plan's."""
    return name.partition(":")[0] in MEMORY_PLANS


def _entry(name: str) -> GroupingHeuristic | MemoryPlan:
    return MEMORY_PLANS[name] if is_plan(name) else GROUPING_HEURISTICS[name]


def plan(name: str, given: PlanInput) -> Planned:
    """Return the memory that a rule or plan makes of the given layers; ConfigError refuses."""
    if is_plan(name):
        return MEMORY_PLANS[name](given)
    rule = GROUPING_HEURISTICS[name]
    if isinstance(rule, GroupingRule) and rule.values.get("lengths", 0) is None:
        name += f"{',' if ':' in name else ':'}lengths={given.lengths}"
    return planned_by_engine(given, replace(given.settings, grouping=name))


def _row(name: str, given: PlanInput) -> Row:
    try:
        memory = plan(name, given)
    except ConfigError as error:
        return Row(name, is_plan(name), None, "; ".join(p.allowed for p in error.problems))
    return Row(name, is_plan(name), _figures(memory, given))


def _figures(memory: Planned, given: PlanInput) -> Figures:
    limits, lengths = given.limits, given.lengths
    held, idle, page_padding = memory.mean_bytes(limits, lengths)
    requests, parts = steady_state(memory, lengths, limits)
    sizes = [group.spec.block_size for group in memory.groups if not group.is_recurrent]
    return Figures(
        num_groups=len(memory.groups),
        group_size=memory.group_size,
        missing_layers=memory.missing_layers,
        idle_bytes=idle,
        idle_share=idle / held if held else Fraction(0),
        page_padding_share=page_padding / held if held else Fraction(0),
        tokens=memory.tokens,
        concurrency=memory.concurrency,
        requests=requests,
        parts=parts,
        recurrent_floor_bytes=memory.recurrent_floor_bytes,
        block_table_bytes=block_table_bytes(sizes, limits.max_model_len),
        host_us_per_step=host_us_per_step(len(memory.groups)),
        logged_percents=tuple(
            float(found[1]) for line in memory.log_lines if (found := _LOGGED.fullmatch(line))
        ),
    )
