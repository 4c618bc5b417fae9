"""The program ``kvsim``: its commands, and what its exit codes mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sim.cli import examples, explain, export, groupings, layout, listing, plot, run, usage, verify
from sim.errors import ConfigError, InvariantError

EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
TYPER_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

app = typer.Typer(
    name="kvsim",
    help="Simulate the KV cache of hybrid language models, block for block.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("layout")(layout.layout)
app.command("groupings")(groupings.groupings)
app.command("run")(run.run)
app.command("list")(listing.list_names)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("examples")(examples.examples)
app.command("plot")(plot.plot)
app.command("verify")(verify.verify)


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
