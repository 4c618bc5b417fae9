"""``kvsim list``: the names that the other commands know, and what stands behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.errors import ConfigError

if TYPE_CHECKING:
    from sim.cli.parameters import Parameter

Rows = Iterable[tuple[str, str]]
Rows3 = Iterable[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing to list: what it is, its names with a line of text each, and what more there is.

    params gives the parameter classes by name; legend explains what the lines use.
    """

    text: str
    rows: Callable[[], Rows]
    params: Callable[[], Mapping[str, Any]] | None = None
    legend: Callable[[], Mapping[str, str]] | None = None


def list_names(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="What to list; without it, the kinds.")
    ] = None,
    params: Annotated[
        bool, typer.Option("--params", help="With parameters (workloads, latency, ...).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """List what the other commands know: models, workloads, metrics ...; alone, the kinds."""
    if kind is None:
        _show("kinds", [(name, entry.text) for name, entry in KINDS.items()], as_json)
    elif kind not in KINDS:
        raise ConfigError.unknown("kvsim list", kind, KINDS)
    elif params:
        _show_params(kind, as_json)
    else:
        legend = KINDS[kind].legend
        _show(kind, list(KINDS[kind].rows()), as_json, legend() if legend else {})


def _show(
    kind: str, rows: Sequence[tuple[str, str]], as_json: bool, legend: Mapping[str, str] = {}
) -> None:
    if as_json:
        more = {"symbols": dict(legend)} if legend else {}
        consoles.show_json({"schema": 1, kind: dict(rows), **more})
        return
    consoles.show_text(_columns(rows))
    if legend:
        consoles.show_text(f"\nSymbols\n{_columns(legend.items())}")


def _show_params(kind: str, as_json: bool) -> None:
    from sim.cli.parameters import parameters

    classes = KINDS[kind].params
    if classes is None:
        known = ", ".join(name for name, entry in KINDS.items() if entry.params)
        raise ConfigError.one("--params", f"with {kind}", f"only with {known}")
    tables = {name: list(parameters(entry)) for name, entry in classes().items()}
    if as_json:
        data = {
            name: {p.key: {"default": p.default, "text": p.text} for p in table}
            for name, table in tables.items()
        }
        consoles.show_json({"schema": 1, kind: data})
        return
    for name, text in KINDS[kind].rows():
        consoles.show_text(f"{name}  {text}\n{_columns(_param_rows(tables[name]))}\n")


def _param_rows(table: Iterable[Parameter]) -> Rows3:
    """What a key of a section means is told once, where the section comes first."""
    told: set[str] = set()
    for key, default, text in table:
        shown = "" if "." in key and text in told else text
        told.add(text)
        yield f"  {key}", default_text(default), shown


def default_text(value: Any) -> str:
    """Return a default as YAML has it."""
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _columns(rows: Iterable[Sequence[str]]) -> str:
    """Text in columns two blanks apart; the last one is as wide as it is."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = ("  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _models() -> Rows:
    from sim.models import known_models, load_model

    return ((name, model_text(load_model(name))) for name in known_models())


def model_text(model: Any) -> str:
    """Return a model in one line: architecture, layers by what they keep, longest context."""
    kinds = Counter(layer.kind for layer in model.layers)
    kept = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    layers = f"{model.dims.num_hidden_layers} layers ({kept})"
    return f"{model.architecture}, {layers}, context {model.max_model_len:,}"


def _groupings() -> Rows:
    from sim.layout.grouping import GROUPING_HEURISTICS

    return _summaries(GROUPING_HEURISTICS)


def _workloads() -> Rows:
    from sim.simulation import WORKLOADS

    return _summaries(WORKLOADS)


def _workload_params() -> Mapping[str, Any]:
    from sim.simulation import WORKLOADS

    return {name: workload.params for name, workload in WORKLOADS.items()}


def _scenarios() -> Rows:
    from sim.scenario_file import known_scenarios, scenario_summary

    return ((name, scenario_summary(name)) for name in known_scenarios())


def _hardware() -> Rows:
    from sim.hardware import known_hardware, load_hardware

    return ((name, load_hardware(name).description) for name in known_hardware())


def _metrics() -> Rows:
    from sim.metrics import METRICS

    return ((name, f"[{metric.unit}] {metric.formula}") for name, metric in METRICS.items())


def _symbols() -> Mapping[str, str]:
    from sim.metrics.symbols import SYMBOLS

    return SYMBOLS


def _latency() -> Rows:
    from sim.latency import LATENCY_MODELS

    return _summaries(LATENCY_MODELS)


def _latency_params() -> Mapping[str, Any]:
    from sim.latency import LATENCY_MODELS

    return {name: entry.params for name, entry in LATENCY_MODELS.items()}


def _acceptance() -> Rows:
    from sim.speculation import ACCEPTANCE_MODELS

    return _summaries(ACCEPTANCE_MODELS)


def _acceptance_params() -> Mapping[str, Any]:
    from sim.speculation import ACCEPTANCE_MODELS

    return {name: entry.params for name, entry in ACCEPTANCE_MODELS.items()}


def _routers() -> Rows:
    from sim.cluster.routers import ROUTERS

    return _summaries(ROUTERS)


def _router_params() -> Mapping[str, Any]:
    from sim.cluster.routers import ROUTERS

    return {name: entry.params for name, entry in ROUTERS.items()}


def _summaries(table: Any) -> Rows:
    return ((name, _first_sentence(entry)) for name, entry in table.items())


def _first_sentence(entry: Any) -> str:
    text = getattr(entry, "summary", None) or (getattr(entry, "__doc__", None) or "")
    return " ".join(text.strip().partition("\n\n")[0].split())


KINDS: dict[str, Kind] = {
    "models": Kind("models that come along, for layout and run", _models),
    "groupings": Kind("rules that make groups of layers (--grouping)", _groupings),
    "workloads": Kind("where requests come from (--workload)", _workloads, _workload_params),
    "scenarios": Kind("scenarios that come along, for run", _scenarios),
    "hardware": Kind("GPUs (--hardware)", _hardware),
    "latency": Kind("step-time models (--latency)", _latency, _latency_params),
    "acceptance": Kind("models of accepted drafts (--acceptance)", _acceptance, _acceptance_params),
    "routers": Kind("who gets the next request (cluster --router)", _routers, _router_params),
    "metrics": Kind("numbers of a run: unit and formula", _metrics, legend=_symbols),
}
