"""``kvsim list``: the names that the other commands know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from sim.cli import consoles
from sim.errors import ConfigError

Rows = Iterable[tuple[str, str]]


def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="models, groupings, workloads, hardware, metrics or latency."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """List the known models, groupings, workloads, hardware, metrics or latency models."""
    if kind not in KINDS:
        raise ConfigError.unknown("kvsim list", kind, KINDS)
    rows = list(KINDS[kind]())
    if as_json:
        consoles.show_json({"schema": 1, kind: dict(rows)})
        return
    width = max((len(name) for name, _ in rows), default=0)
    lines = (f"{name:<{width}}  {text}".rstrip() for name, text in rows)
    consoles.show_text("".join(line + "\n" for line in lines))


def _models() -> Rows:
    from sim.models import known_models

    return ((name, "") for name in known_models())


def _groupings() -> Rows:
    from sim.layout.grouping import GROUPING_HEURISTICS

    return _summaries(GROUPING_HEURISTICS)


def _workloads() -> Rows:
    from sim.simulation import WORKLOADS

    return ((name, workload.summary) for name, workload in WORKLOADS.items())


def _hardware() -> Rows:
    from sim.hardware import known_hardware, load_hardware

    return ((name, load_hardware(name).description) for name in known_hardware())


def _metrics() -> Rows:
    from sim.metrics import METRICS

    return ((name, f"[{metric.unit}] {metric.formula}") for name, metric in METRICS.items())


def _latency() -> Rows:
    from sim.latency import LATENCY_MODELS

    return _summaries(LATENCY_MODELS)


def _summaries(table: Any) -> Rows:
    return ((name, _first_sentence(entry)) for name, entry in table.items())


def _first_sentence(entry: Any) -> str:
    text = getattr(entry, "summary", None) or (getattr(entry, "__doc__", None) or "")
    return " ".join(text.strip().partition("\n\n")[0].split())


KINDS: dict[str, Callable[[], Rows]] = {
    "models": _models,
    "groupings": _groupings,
    "workloads": _workloads,
    "hardware": _hardware,
    "metrics": _metrics,
    "latency": _latency,
}
