"""``kvsim run``: a scenario, from a file or from options, and its result on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import Interrupted, consoles
from sim.cli.options import RUN_OPTIONS, named_as_flags, scenario_keys, with_options
from sim.cli.runs import RUNS
from sim.errors import MAX_LINES, ConfigError

if TYPE_CHECKING:
    from sim.config import Scenario
    from sim.results import RunResult
    from sim.simulation import Assembly

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
    profile: bool


@with_options(RUN_OPTIONS)
def run(
    scenario_file: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="A file, or a name (kvsim list scenarios); options override its keys.",
        ),
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
    as_json: Annotated[
        bool, typer.Option("--json", help="The summary, or the scenario, as JSON on stdout.")
    ] = False,
    print_scenario: Annotated[
        bool, typer.Option("--print-scenario", help="Write the scenario as YAML, do nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Run again and say where the time goes.")
    ] = False,
    **flags: Any,
) -> int:
    """Run a scenario: requests through scheduler, cache manager and block pool."""
    if verify and (force or profile):
        option = "--force" if force else "--profile"
        raise ConfigError.one(option, "with --verify", "one of the two")
    keys = scenario_keys(RUN_OPTIONS, flags)
    # Without a file there are only options that an error can mean.
    named = keys if scenario_file else dict.fromkeys(option.key for option in RUN_OPTIONS)
    with named_as_flags(RUN_OPTIONS, named):
        scenario = chosen_scenario("kvsim run", scenario_file, keys)
        check_workload_flags(scenario, keys)
        if print_scenario:
            return _print_scenario(scenario, as_json)
        return _run(
            scenario, Job(out, force or profile, verify, not no_figures, as_json, quiet, profile)
        )


def chosen_scenario(command: str, name_or_path: str | None, keys: dict[str, Any]) -> Scenario:
    """Return the scenario of a file with the options' keys over it, or of the options alone."""
    from sim.scenario_file import load_scenario, scenario_from

    if name_or_path is None and "model" not in keys:
        raise ConfigError.one(command, "no scenario", "a SCENARIO, or --model MODEL")
    return scenario_from(keys, load_scenario(name_or_path) if name_or_path else None)


def check_workload_flags(scenario: Scenario, keys: Iterable[str]) -> None:
    """Refuse an option for a parameter that the workload lacks; name the workloads that have it."""
    from sim.simulation import WORKLOADS

    name = scenario.workload.name
    for option in RUN_OPTIONS:
        prefix, _, parameter = option.key.partition("workload.params.")
        if prefix or not parameter or option.key not in keys or name not in WORKLOADS:
            continue
        field = parameter.partition(".")[0]
        having = [n for n, w in WORKLOADS.items() if field in w.params.model_fields]
        if name not in having:
            allowed = f"only with the workload {' or '.join(having)}"
            raise ConfigError.one(option.key, f"with the workload {name}", allowed)


def _print_scenario(scenario: Scenario, as_json: bool) -> int:
    from sim.scenario_file import scenario_yaml

    complete = _with_plugin_defaults(scenario)
    if as_json:
        consoles.show_json({"schema": 1, "scenario": complete.model_dump(mode="json")})
    else:
        consoles.show_text(scenario_yaml(complete))
    return 0


def _with_plugin_defaults(scenario: Scenario) -> Scenario:
    """Write out every parameter of the workload and of the models of time and acceptance."""
    from sim.latency import LATENCY_MODELS
    from sim.simulation import WORKLOADS
    from sim.speculation import ACCEPTANCE_MODELS

    complete: dict[str, Any] = {}
    for section, table in (("latency", LATENCY_MODELS), ("workload", WORKLOADS)):
        complete[section] = _complete(getattr(scenario, section), table, section)
    speculative = scenario.speculative
    acceptance = _complete(speculative.acceptance, ACCEPTANCE_MODELS, "speculative.acceptance")
    complete["speculative"] = speculative.model_copy(update={"acceptance": acceptance})
    return scenario.model_copy(update=complete)


def _complete(plugin: Any, table: Any, section: str) -> Any:
    from sim.config import validated

    params = validated(table[plugin.name].params, plugin.params, f"{section}.params")
    return plugin.model_copy(update={"params": params.model_dump(mode="json")})


def _run(scenario: Scenario, job: Job) -> int:
    from sim.results import RunResult, check_destination, is_complete, run_id
    from sim.simulation import assemble, input_digests

    assembly = assemble(scenario)
    _check_files(assembly)
    identity = run_id(assembly.scenario, input_digests(assembly))
    folder = job.out or RUNS / identity
    check_destination(folder)
    stored = RunResult.load(folder) if is_complete(folder) and not job.force else None
    if stored is not None and stored.run_id != identity:
        allowed = "a folder without another scenario's result, or --force to replace it"
        raise ConfigError.one("--out", str(folder), allowed)
    for line in assembly.notes:
        _note(job, line)
    if stored is None or job.verify:
        _note_engine(assembly, job)
    if job.verify:
        return _verify(assembly, folder, stored, job)
    result = stored or _with_progress(assembly.scenario, job)
    return _keep(result, assembly, folder, job, is_stored=stored is not None)


def _note_engine(assembly: Assembly, job: Job) -> None:
    """Say which engine runs if it is not the one that was hoped for, or if it takes its time."""
    from sim.engine_choice import fallback_note
    from sim.jit import is_available, is_cached

    if assembly.fallback is not None:
        _note(job, fallback_note(assembly.fallback))
    elif assembly.step_time is not None and is_available() and not is_cached():
        _note(job, "the compiled engine is compiled first, which later runs need not do")


def _check_files(assembly: Assembly) -> None:
    """Name the nearest file where one of the workload, such as a trace, is not there."""
    from sim.scenario_file import missing_file

    params = assembly.scenario.workload.params
    for path in assembly.workload.files(assembly.workload_params):
        if not Path(path).exists():
            key = "workload.params.path" if params.get("path") == str(path) else "workload.params"
            raise missing_file(key, Path(path))


def _keep(result: RunResult, assembly: Assembly, folder: Path, job: Job, *, is_stored: bool) -> int:
    """Write what is not there yet, and show the result."""
    from sim.results import is_complete

    try:
        if not is_stored:
            result.save(folder, figures=job.figures)
        else:
            text = "the complete result of this scenario is reused; --force runs again"
            _note(job, f"{folder}: {text}")
            if job.figures and result.add_figures(folder):
                _note(job, f"{folder}: figures drawn")
        return _finish(result, assembly, folder, job)
    except KeyboardInterrupt:
        if not is_complete(folder):
            raise
        raise Interrupted(f"{folder} holds a complete result") from None


def _with_progress(scenario: Scenario, job: Job) -> RunResult:
    from sim.profiling import Profiler
    from sim.progress import NullProgress, progress_on
    from sim.simulation import simulate

    profiler = Profiler() if job.profile else None
    if job.quiet:
        return simulate(scenario, progress=NullProgress(), profiler=profiler)
    with progress_on(consoles.console(stderr=True)) as progress:
        return simulate(scenario, progress=progress, profiler=profiler)


def _finish(result: RunResult, assembly: Assembly, folder: Path, job: Job) -> int:
    """Show a result that lies in ``folder``; 1 if its run ended stuck."""
    from sim.cli.endings import ending_lines, stuck_lines

    if job.as_json:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        if job.profile:
            summary["profile"] = result.provenance["profile"]
        consoles.show_json({"folder": str(folder), **summary})
    else:
        from sim.report_text import profile_renderables, summary_renderables

        consoles.show(summary_renderables(result))
        if job.profile:
            consoles.show(profile_renderables(result.provenance["profile"]))
        consoles.show_text("".join(f"{line}\n" for line in _places(folder)))
    for line in ending_lines(result.tables.request_table, assembly):
        _note(job, line)
    stuck = stuck_lines(result.tables.request_table)
    for line in stuck:
        consoles.note(line)
    return EXIT_FAILED if stuck else 0


def _places(folder: Path) -> list[str]:
    """Where the result and its figures are."""
    from sim.plots import FIGURES

    figures = folder / "figures"
    drawn = [name for name in sorted(FIGURES) if (figures / f"{name}.png").is_file()]
    line = [f"figures  {figures} ({', '.join(drawn)}; PNG and SVG)"] if drawn else []
    return [f"result   {folder}", *line]


def _verify(assembly: Assembly, folder: Path, stored: RunResult | None, job: Job) -> int:
    from sim.verification import differences

    if stored is None:
        raise ConfigError.one("--verify", str(folder), "a folder with a complete result to compare")
    lines = differences(stored, _with_progress(assembly.scenario, job))
    for line in lines[:MAX_LINES]:
        consoles.note(f"differs from {folder}: {line}")
    if lines:
        return EXIT_FAILED
    _note(job, f"{folder}: run again, the same values")
    return _finish(stored, assembly, folder, job)


def _note(job: Job, text: str) -> None:
    if not job.quiet:
        consoles.note(text)
