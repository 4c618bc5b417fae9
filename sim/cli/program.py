"""The program ``kvsim``: its commands, and what its exit codes mean.

A command's module is loaded when the command is called: ``kvsim --help`` reads the table below.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sim.cli import usage
from sim.errors import ConfigError, InvariantError

EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
TYPER_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

COMMANDS = {
    "layout": (
        "sim.cli.layout:layout",
        "Show groups, padding, block sizes, blocks, tokens and concurrency of a model.",
    ),
    "groupings": (
        "sim.cli.groupings:groupings",
        "Compare all grouping rules and memory plans: groups, padding, tokens, and where bytes go.",
    ),
    "run": (
        "sim.cli.run:run",
        "Run a scenario: requests through scheduler, cache manager and block pool.",
    ),
    "cluster": (
        "sim.cli.cluster:cluster",
        "Run a scenario on several replicas behind a router; with several routers, compare them.",
    ),
    "list": (
        "sim.cli.listing:list_names",
        "List what the other commands know: models, workloads, metrics ...; alone, the kinds.",
    ),
    "explain": (
        "sim.cli.explain:explain",
        "Say why lookups of a run found no more: which group lost what, when, and to whom.",
    ),
    "export": (
        "sim.cli.export:export",
        "Write the tables of a result as CSV; print the files' names.",
    ),
    "examples": (
        "sim.cli.examples:examples",
        "Work through the examples of the design text; 1 if a number is not the text's.",
    ),
    "plot": (
        "sim.cli.plot:plot",
        "Draw figures as SVG and PNG: of a result, or of groupings; print the files' names.",
    ),
    "curve": (
        "sim.cli.curve:curve",
        "Count hits of a trace at many capacities: one chain of blocks in one pass, or a model's.",
    ),
    "verify": (
        "sim.cli.verify:verify",
        "Compare each step with vLLM's own scheduler; stop at the first difference.",
    ),
}
"""Where the function of each command is, and the first line of its docstring."""

PLAIN: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}


class _Commands(TyperGroup):
    """Puts the command itself in the place of its line in the help when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return typer's answer."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """Return the command of that name, its options read from its function's signature."""
    module, _, function = COMMANDS[name][0].partition(":")
    alone = typer.Typer(**PLAIN)
    alone.command(name)(getattr(import_module(module), function))
    return get_command(alone)


app = typer.Typer(
    name="kvsim",
    cls=_Commands,
    help="Simulate the KV cache of hybrid language models, block for block.",
    context_settings={"help_option_names": ["-h", "--help"]},
    **PLAIN,
)
for _name, (_, _line) in COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"kvsim {version('hybrid-kv-sim')}\n")
        raise typer.Exit


@app.callback()
def _kvsim(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate the KV cache of hybrid language models, block for block."""


def run_program(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code, as ``sim.cli.main`` explains it.

    Raises KeyboardInterrupt or Interrupted where Ctrl-C ended it.
    """
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        where = str(error.filename or "output")
        return _report(ConfigError.one(where, error.strerror, "a place that can be used"))
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=arguments, prog_name="kvsim", standalone_mode=False)
    except ConfigError as error:
        return _report(error)
    except usage.UsageError as error:
        return _report(usage.as_config_error(error))
    except InvariantError as error:
        sys.stderr.write(f"kvsim: broken state: {error}\n")
        return EXIT_FAILED
    except SystemExit as error:
        return EXIT_BROKEN_PIPE if error.code == 1 else int(error.code or 0)
    if code == TYPER_INTERRUPTED:  # what typer makes of Ctrl-C inside a command
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _report(error: ConfigError) -> int:
    for line in error.lines():
        sys.stderr.write(f"kvsim: error: {line}\n")
    return EXIT_WRONG_INPUT


def _discard_stdout() -> None:
    """Let the interpreter's last flush go nowhere instead of complaining."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
