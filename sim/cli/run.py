"""``kvsim run``: a scenario, from a file or from options, and its result on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.options import RUN_OPTIONS, named_as_flags, scenario_keys, with_options
from sim.cli.runs import RUNS
from sim.errors import MAX_LINES, ConfigError

if TYPE_CHECKING:
    from sim.config import Scenario
    from sim.results import RunResult

EXIT_FAILED = 1


@dataclass(frozen=True, slots=True)
class Job:
    """What to do with a scenario and where its result goes (None: named by its content)."""

    out: Path | None
    force: bool
    verify: bool
    figures: bool
    as_json: bool
    quiet: bool


@with_options(RUN_OPTIONS)
def run(
    scenario_file: Annotated[
        Path | None,
        typer.Argument(metavar="SCENARIO.yaml", help="Options override the keys of this file."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the result goes.  [default: runs/<run-id>]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again, replace the result.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run again, compare with the stored result.")
    ] = False,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Draw nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON on stdout.")] = False,
    print_scenario: Annotated[
        bool, typer.Option("--print-scenario", help="Write the scenario as YAML, do nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")] = False,
    **flags: Any,
) -> int:
    """Run a scenario: requests through scheduler, cache manager and block pool."""
    from sim.scenario_file import scenario_yaml

    if force and verify:
        raise ConfigError.one("--force", "with --verify", "one of the two")
    keys = scenario_keys(RUN_OPTIONS, flags)
    with named_as_flags(RUN_OPTIONS, keys):
        scenario = _scenario(scenario_file, keys)
        if print_scenario:
            consoles.show_text(scenario_yaml(scenario))
            return 0
        return _run(scenario, Job(out, force, verify, not no_figures, as_json, quiet))


def _scenario(path: Path | None, keys: dict[str, Any]) -> Scenario:
    from sim.scenario_file import load_scenario, scenario_from

    if path is None and "model" not in keys:
        raise ConfigError.one("kvsim run", "no scenario", "a SCENARIO.yaml, or --model MODEL")
    return scenario_from(keys, load_scenario(path) if path else None)


def _run(scenario: Scenario, job: Job) -> int:
    from sim.results import RunResult, check_destination, is_complete
    from sim.simulation import identify

    resolved, identity = identify(scenario)
    folder = job.out or RUNS / identity
    check_destination(folder)
    stored = RunResult.load(folder) if is_complete(folder) and not job.force else None
    if stored is not None and stored.run_id != identity:
        allowed = "a folder without another scenario's result, or --force to replace it"
        raise ConfigError.one("--out", str(folder), allowed)
    if job.verify:
        return _verify(resolved, folder, stored, job)
    if stored is not None:
        _note(job, f"{folder}: the complete result of this scenario is reused; --force runs again")
    return _finish(stored or _simulate(resolved, folder, job), folder, job)


def _simulate(scenario: Scenario, folder: Path, job: Job) -> RunResult:
    result = _with_progress(scenario, job)
    result.save(folder, figures=job.figures)
    return result


def _with_progress(scenario: Scenario, job: Job) -> RunResult:
    from sim.progress import NullProgress, progress_on
    from sim.simulation import simulate

    if job.quiet:
        return simulate(scenario, progress=NullProgress())
    with progress_on(consoles.console(stderr=True)) as progress:
        return simulate(scenario, progress=progress)


def _finish(result: RunResult, folder: Path, job: Job) -> int:
    """Show a result that lies in ``folder``; 1 if its run ended stuck."""
    if job.as_json:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        consoles.show_json({"folder": str(folder), **summary})
    else:
        from sim.report_text import summary_renderables

        consoles.show(summary_renderables(result))
        consoles.show_text("".join(f"{line}\n" for line in _places(folder)))
    stuck = result.requests[result.requests["outcome"] == "stuck"]
    for request_id, reason in zip(stuck["request_id"][:MAX_LINES], stuck["reason"], strict=False):
        consoles.note(f"stuck: {request_id}: {reason}")
    if len(stuck) > MAX_LINES:
        consoles.note(f"stuck: {len(stuck) - MAX_LINES} more requests")
    return EXIT_FAILED if len(stuck) else 0


def _places(folder: Path) -> list[str]:
    """Where tables and figures are."""
    figures = sorted((folder / "figures").glob("*.png"))
    return [f"result   {folder}", *(f"figure   {path}" for path in figures)]


def _verify(scenario: Scenario, folder: Path, stored: RunResult | None, job: Job) -> int:
    from sim.verification import differences

    if stored is None:
        raise ConfigError.one("--verify", str(folder), "a folder with a complete result to compare")
    lines = differences(stored, _with_progress(scenario, job))
    for line in lines[:MAX_LINES]:
        consoles.note(f"differs from {folder}: {line}")
    if lines:
        return EXIT_FAILED
    _note(job, f"{folder}: run again, the same values")
    return _finish(stored, folder, job)


def _note(job: Job, text: str) -> None:
    if not job.quiet:
        consoles.note(text)
