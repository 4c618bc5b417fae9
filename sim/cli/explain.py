"""``kvsim explain``: why the prefix cache had what it had, for a run or for one request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.runs import find_run
from sim.errors import ConfigError

if TYPE_CHECKING:
    from sim.reasons.story import Story
    from sim.results import RunResult

NUM_WORST = 10


def explain(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a result, or its run id.")],
    request: Annotated[
        str | None,
        typer.Argument(metavar="[REQUEST]", help="Id of a request.  [default: all in short]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")] = False,
) -> int:
    """Say why lookups of a run found no more: which group lost what, when, and to whom.

    A result without recorded reasons (kvsim run --reasons) is simulated again with them.
    """
    from sim.results import RunResult

    result = RunResult.load(find_run(run))
    if request is not None:
        _check_request(result, request)
    result = _with_reasons(result, run, quiet)
    if as_json:
        consoles.show_json(_document(result, request))
    elif request is None:
        _show_summary(result)
    else:
        consoles.show_text("".join(f"{line}\n" for line in _request_lines(result, request)))
    return 0


def _check_request(result: RunResult, request: str) -> None:
    known = list(result.requests["request_id"])
    if request not in known:
        raise ConfigError.unknown("REQUEST", request, known)


def _with_reasons(result: RunResult, run: str, quiet: bool) -> RunResult:
    """Return the result itself, or the one of the same scenario run again, recording reasons."""
    if result.reasons is not None:
        return result
    if not quiet:
        consoles.note(f"{run} has no reasons: the scenario is run again with them")
    again = _simulate(result, quiet)
    if not again.requests.equals(result.requests):
        consoles.note(f"{run} holds other values than the scenario gives now; these are explained")
    return again


def _simulate(result: RunResult, quiet: bool) -> RunResult:
    from sim.progress import NullProgress, progress_on
    from sim.simulation import simulate

    scenario = result.scenario
    # vLLM's manager tells no observer; ours decides the same, and does not need vLLM.
    engine = scenario.engine.model_copy(update={"reasons": True, "manager": "native"})
    scenario = scenario.model_copy(update={"engine": engine})
    if quiet:
        return simulate(scenario, progress=NullProgress())
    with progress_on(consoles.console(stderr=True)) as progress:
        return simulate(scenario, progress=progress)


def _story(result: RunResult) -> Story:
    from sim.reasons.story import Story

    tables = result.tables
    assert tables.lookups is not None
    assert tables.reasons is not None
    return Story(tables.lookups, tables.reasons, result.layout["groups"], tables.num_blocks)


def _show_summary(result: RunResult) -> None:
    from rich.text import Text

    from sim.report_text import lost_renderables, reason_renderables

    worst = _story(result).worst(NUM_WORST)
    consoles.show([*reason_renderables(result), *(lost_renderables(worst) if worst else ())])
    if not result.layout["settings"]["enable_prefix_caching"]:
        consoles.show([Text("Prefix caching is off: there were no lookups.")])


def _request_lines(result: RunResult, request: str) -> Iterator[str]:
    lines = _story(result).lines(request)
    yield from lines
    if not lines:
        yield f"{request} was never looked up: {_why_not(result, request)}."


def _why_not(result: RunResult, request: str) -> str:
    if not result.layout["settings"]["enable_prefix_caching"]:
        return "prefix caching is off"
    row = result.requests.set_index("request_id").loc[request]
    reason = row["reason"] if isinstance(row["reason"], str) else "it never came to the front"
    return f"it was {row['outcome']}: {reason}"


def _document(result: RunResult, request: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {"schema": 1, "run_id": result.run_id}
    if request is None:
        return {**document, "summary": result.reasons, "worst": _worst_rows(result)}
    tables = result.tables
    assert tables.lookups is not None
    assert tables.reasons is not None
    lookups = tables.lookups[tables.lookups["request_id"] == request]
    reasons = tables.reasons[tables.reasons["lookup"].isin(lookups["lookup"])]
    return {
        **document,
        "request_id": request,
        "lookups": _rows(lookups),
        "reasons": _rows(reasons),
        "text": list(_request_lines(result, request)),
    }


def _worst_rows(result: RunResult) -> list[dict[str, Any]]:
    names = ("request_id", "lost_tokens", "tokens", "why")
    return [dict(zip(names, row, strict=True)) for row in _story(result).worst(NUM_WORST)]


def _rows(frame: Any) -> list[dict[str, Any]]:
    """Return the rows with JSON types; what is missing is null."""
    return [
        {name: _plain(value) for name, value in zip(frame.columns, row, strict=True)}
        for row in frame.itertuples(index=False)
    ]


def _plain(value: Any) -> Any:
    import pandas as pd

    if pd.isna(value):
        return None
    return value if isinstance(value, str) else int(value)
