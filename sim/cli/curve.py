"""``kvsim curve``: hits of a trace against capacity, without scheduler and time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import consoles
from sim.cli.options import (
    CACHE,
    ENGINE,
    RETENTION,
    SCHEDULER,
    WORK,
    Options,
    named_as_flags,
    scenario_keys,
    with_options,
)
from sim.errors import ConfigError

if TYPE_CHECKING:
    from sim.curve.making import Question, Ticker
    from sim.curve.result import Curve

CURVES = Path("curves")
_TRACE = ("workload.params.block_size", "workload.params.max_requests")
_CHUNKS = ("scheduler.long_prefill_token_threshold", "scheduler.enable_chunked_prefill")
_SIZES = ("cache.kv_cache_memory_bytes", "cache.num_gpu_blocks_override")
_BLOCK_SIZE = "cache.block_size"
CURVE_OPTIONS: Options = (
    *(option for option in WORK if option.key in _TRACE),
    *(option for option in CACHE if option.key not in _SIZES),
    RETENTION,
    *(option for option in SCHEDULER if option.key in _CHUNKS),
    *(option for option in ENGINE if option.key == "engine.core"),
)


@with_options(CURVE_OPTIONS)
def curve(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Requests in Mooncake's form (docs/traces.md).")
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Its groups, in bytes, beside one chain of blocks."),
    ] = None,
    capacities: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Such as 100,1000 (blocks) or, with a model, 1GiB,20GiB.  "
            "[default: 15 logarithmic ones up to all blocks]",
        ),
    ] = None,
    definition: Annotated[
        str,
        typer.Option(
            metavar="leaf_first|root_first|per_access",
            help="What a hit is, and the order of touches.",
        ),
    ] = "leaf_first",
    full_blocks: Annotated[
        bool, typer.Option("--full-blocks", help="Leave out listed blocks that are not full.")
    ] = False,
    no_outputs: Annotated[
        bool,
        typer.Option("--no-outputs", help="With --block-size: keep no blocks of generated tokens."),
    ] = False,
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO", help="Estimate one chain from this share of its blocks.", min=0, max=1
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="INTEGER", help="Which blocks are sampled.", min=0)
    ] = 0,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Leave out prompts without tokens.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the files go.  [default: curves/<trace>[.<model>]]"
        ),
    ] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Draw nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")] = False,
    **flags: Any,
) -> int:
    """Count hits of a trace at many capacities: one chain of blocks in one pass, or a model's."""
    from sim.curve.capacities import read_capacities
    from sim.curve.making import Question
    from sim.curve.result import check_destination, save
    from sim.curve.stack_distances import DEFINITIONS

    keys = scenario_keys(CURVE_OPTIONS, flags)
    DEFINITIONS[definition]
    _check(model, keys, definition, full_blocks, no_outputs, sample)
    with named_as_flags(CURVE_OPTIONS, keys):
        question = Question(
            _trace(trace, keys, skip_empty),
            definition,
            _block_size(keys) if model is None else None,
            full_blocks,
            not no_outputs,
            read_capacities(capacities) if capacities is not None else (),
            sample_ratio=sample,
            seed=seed,
        )
        folder = out or CURVES / _name(trace, model)
        check_destination(folder)
        made = _made(question, model, keys, quiet)
    save(made, folder, figure=not no_figures)
    _show(made, folder, as_json)
    return 0


def _check(
    model: str | None,
    keys: dict[str, Any],
    definition: str,
    full_blocks: bool,
    no_outputs: bool,
    sample: float | None,
) -> None:
    """Refuse options that have no meaning together."""
    foreign = [o for o in CURVE_OPTIONS if o.key in keys and o.key not in (*_TRACE, _BLOCK_SIZE)]
    is_engine = model is not None or _BLOCK_SIZE in keys
    if sample is not None and not 0 < sample < 1:
        raise ConfigError.one("--sample", sample, "above 0 and below 1")
    problems = (
        (foreign and model is None, foreign[0].names[0] if foreign else "", "only with --model"),
        (full_blocks and is_engine, "--full-blocks", "only with the blocks of the trace"),
        (no_outputs and not is_engine, "--no-outputs", "only with --block-size or --model"),
        (sample is not None and model is not None, "--sample", "only without --model"),
        (sample is not None and definition != "leaf_first", "--sample", "only leaf_first"),
    )
    for is_wrong, option, allowed in problems:
        if is_wrong:
            raise ConfigError.one("kvsim curve", option, allowed)


def _trace(path: Path, keys: dict[str, Any], skip_empty: bool) -> Any:
    from sim.curve.reading import trace_params

    given = {key.rpartition(".")[2]: keys[key] for key in _TRACE if key in keys}
    return trace_params(path, {"skip_empty": skip_empty, **given})


def _block_size(keys: dict[str, Any]) -> int | None:
    from sim.config import CacheConfig, validated

    given = {"block_size": keys[_BLOCK_SIZE]} if _BLOCK_SIZE in keys else {}
    size: int | None = validated(CacheConfig, given, "cache").block_size
    return size


def _name(trace: Path, model: str | None) -> str:
    stem = trace.name.split(".json", 1)[0]
    return stem if model is None else f"{stem}.{Path(model).stem.replace('/', '--')}"


def _made(question: Question, model: str | None, keys: dict[str, Any], quiet: bool) -> Curve:
    if model is None:
        from sim.curve.making import chain_curve

        with _ticker(quiet) as tick:
            return chain_curve(question, tick)
    from sim.curve.groups import model_groups
    from sim.curve.model_making import model_curve

    groups = model_groups(model, {k: v for k, v in keys.items() if k not in _TRACE})
    if groups.is_compiled and not quiet:
        _note_compilation()
    with _ticker(quiet) as tick:
        return model_curve(question, groups, tick)


def _note_compilation() -> None:
    from sim.curve.compiled_server import is_cached

    if not is_cached():
        consoles.note("the compiled manager is compiled first, which later runs need not do")


@contextmanager
def _ticker(quiet: bool) -> Iterator[Ticker]:
    """Give what shows progress while the block runs: a line if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda task, done: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = consoles.console(stderr=True)
    with Progress(*columns, console=console, transient=True) as display:
        yield _on(display)


def _on(display: Any) -> Callable[[str, int], None]:
    """The display's own thread draws; a tick only stores what it is told."""
    display.add_task("reading", total=None)
    task = display.tasks[-1]

    def tick(name: str, done: int) -> None:
        task.description = f"{name}: {done:,} requests"

    return tick


def _show(made: Curve, folder: Path, as_json: bool) -> None:
    if as_json:
        consoles.show_json({"folder": str(folder), **made.document()})
        return
    from sim.curve.report import curve_renderables

    consoles.show(curve_renderables(made))
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    consoles.show_text(f"result   {folder} ({names})\n")
