"""``kvsim cluster``: a scenario on several replicas behind a router, or behind several in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import Interrupted, consoles
from sim.cli.options import RUN_OPTIONS, Option, named_as_flags, scenario_keys, with_options
from sim.cli.run import _check_files, _note_engine, check_workload_flags
from sim.cli.runs import RUNS
from sim.errors import ConfigError

if TYPE_CHECKING:
    from sim.cluster.config import ClusterScenario
    from sim.cluster.simulation import ClusterAssembly

EXIT_FAILED = 1
PARAMS = "cluster.router.params."

CLUSTER_OPTIONS = (
    Option("cluster.replicas", "COUNT", "Equal engines behind the router", "1"),
    Option(
        PARAMS.rstrip("."),
        "KEY=VALUE",
        "Parameter of the routers that have it; repeatable",
        "",
        "pairs",
        ("--router-param",),
    ),
    *RUN_OPTIONS,
)

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """Where results go (None: named by their content), and how much is told."""

    out: Path | None
    force: bool
    as_json: bool
    quiet: bool


@with_options(CLUSTER_OPTIONS)
def cluster(
    scenario_file: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="A file, or a name (kvsim list scenarios); options override its keys.",
        ),
    ] = None,
    router: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="Router (kvsim list routers); several, or all, are compared; repeatable"
            "  [default: round_robin]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the result goes.  [default: runs/<run-id>]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again, replace the result.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The results' summaries as JSON on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")] = False,
    **flags: Any,
) -> int:
    """Run a scenario on several replicas behind a router; with several routers, compare them."""
    from sim.cluster.comparison import with_router
    from sim.cluster.router_text import read_routers
    from sim.cluster.simulation import assemble_cluster

    keys = scenario_keys(CLUSTER_OPTIONS, flags)
    named = keys if scenario_file else dict.fromkeys(option.key for option in CLUSTER_OPTIONS)
    with named_as_flags(CLUSTER_OPTIONS, named):
        scenario = chosen_scenario(scenario_file, keys)
        check_workload_flags(scenario, keys)
        common = {k.removeprefix(PARAMS): v for k, v in keys.items() if k.startswith(PARAMS)}
        routers = read_routers(router or [], common, scenario.cluster.router)
        scenarios = [with_router(scenario, entry) for entry in routers]
        plans = [assemble_cluster(entry, _check_files) for entry in scenarios]
    return _run(plans, Job(out, force, as_json, quiet))


def chosen_scenario(name_or_path: str | None, keys: Mapping[str, Any]) -> ClusterScenario:
    """Return the scenario of a file with the options' keys over it, or of the options alone.

    The section ``cluster`` of a file says how many replicas there are and who chooses.
    """
    from sim.cluster.config import with_cluster
    from sim.scenario_file import load_scenario, scenario_from

    if name_or_path is None and "model" not in keys:
        raise ConfigError.one("kvsim cluster", "no scenario", "a SCENARIO, or --model MODEL")
    data = dict(load_scenario(name_or_path)) if name_or_path else {}
    section = data.pop("cluster", {})
    plain = {key: value for key, value in keys.items() if not key.startswith("cluster.")}
    scenario = scenario_from(plain, data)
    if "cluster.replicas" in keys and isinstance(section, dict):
        section = {**section, "replicas": keys["cluster.replicas"]}
    return with_cluster(scenario, section)


def _run(plans: Sequence[ClusterAssembly], job: Job) -> int:
    """Run what is not there yet, show everything; 1 if a run ended stuck."""
    from sim.cluster.report import comparison_renderables, summary_renderables

    _check_alike(plans)
    folders = _folders(plans, job)
    for line in plans[0].assembly.notes:
        _note(job, line)
    done: list[Path] = []
    try:
        summaries = [_summary(plan, folder, job, done) for plan, folder in folders]
        files = _compared(summaries, folders[0][1].parent) if len(plans) > 1 else []
    except KeyboardInterrupt:
        if not done:
            raise
        raise Interrupted(f"complete results: {', '.join(map(str, done))}") from None
    if job.as_json:
        consoles.show_json({"schema": 1, "folders": [str(f) for _, f in folders],
                            "clusters": summaries})  # fmt: skip
    else:
        tables = comparison_renderables if files else lambda found: summary_renderables(found[0])
        consoles.show(tables(summaries))
        consoles.show_text("".join(f"{line}\n" for line in _places(folders, files)))
    return _stuck(summaries)


def _check_alike(plans: Sequence[ClusterAssembly]) -> None:
    names = [plan.run_id for plan in plans]
    if len(set(names)) < len(names):
        raise ConfigError.one("--router", "the same router twice", "different routers")


def _folders(plans: Sequence[ClusterAssembly], job: Job) -> list[tuple[ClusterAssembly, Path]]:
    """Return where each result goes: a folder, or one for each router in a folder."""
    from sim.cluster.comparison import check_folder, comparison_id, folder_name
    from sim.cluster.result import check_destination

    if len(plans) == 1:
        folders = [(plans[0], job.out or RUNS / plans[0].run_id)]
    else:
        whole = job.out or RUNS / comparison_id([plan.run_id for plan in plans])
        check_folder(whole)
        names = [folder_name(router_of(plan)) for plan in plans]
        folders = [(plan, whole / name) for plan, name in zip(plans, names, strict=True)]
    for _, folder in folders:
        check_destination(folder)
    return folders


def router_of(plan: ClusterAssembly) -> str:
    """Return the router of a plan as ``--router`` takes it."""
    from sim.cluster.router_text import router_text

    return router_text(plan.scenario.cluster.router)


def _summary(plan: ClusterAssembly, folder: Path, job: Job, done: list[Path]) -> Summary:
    """Return the stored result, or run and store it; the folder is noted as done then."""
    from sim.cli.endings import ending_lines
    from sim.cluster.result import stored_summary
    from sim.tables import MemoryTable

    stored = None if job.force else stored_summary(folder)
    if stored is not None and stored["run_id"] != plan.run_id:
        allowed = "a folder without another scenario's result, or --force to replace it"
        raise ConfigError.one("--out", str(folder), allowed)
    if stored is not None:
        text = "the complete result of this scenario is reused; --force runs again"
        _note(job, f"{folder}: {text}")
    else:
        result = _simulate(plan, job)
        result.save(folder)
        for line in ending_lines(MemoryTable.of(result.requests), plan.assembly):
            _note(job, line)
    done.append(folder)
    summary = stored_summary(folder)
    assert summary is not None
    return summary


def _simulate(plan: ClusterAssembly, job: Job) -> Any:
    from sim.cluster.simulation import simulate_cluster
    from sim.progress import progress_on

    _note_engine(plan.assembly, job)
    if job.quiet:
        return simulate_cluster(plan)
    with progress_on(consoles.console(stderr=True)) as progress:
        return simulate_cluster(plan, progress=progress)


def _compared(summaries: Sequence[Summary], folder: Path) -> list[str]:
    from sim.cluster.comparison import save_comparison

    return save_comparison(summaries, folder)


def _places(folders: Sequence[tuple[ClusterAssembly, Path]], files: Sequence[str]) -> list[str]:
    if not files:
        return [f"result   {folders[0][1]}"]
    whole = folders[0][1].parent
    return [f"results  {whole} ({', '.join(f.name for _, f in folders)})",
            f"compared {', '.join(str(whole / name) for name in files)}"]  # fmt: skip


def _stuck(summaries: Sequence[Summary]) -> int:
    """Say which runs ended with requests that could not go on."""
    stuck = [(s["router"], s["totals"]["requests_stuck"]) for s in summaries]
    for router, number in stuck:
        if number:
            consoles.note(f"stuck: {number:,} requests behind {router}; see requests.parquet")
    return EXIT_FAILED if any(number for _, number in stuck) else 0


def _note(job: Job, text: str) -> None:
    if not job.quiet:
        consoles.note(text)
