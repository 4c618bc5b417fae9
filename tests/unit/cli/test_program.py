"""The table of commands says what the commands themselves say, and costs nothing to read."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from sim.cli.program import COMMANDS, app, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_line_of_the_help_is_the_first_one_of_the_docstring(name: str) -> None:
    place, line = COMMANDS[name]
    module, _, function = place.partition(":")
    text = inspect.getdoc(getattr(import_module(module), function))
    assert text is not None
    assert text.splitlines()[0] == line


@pytest.mark.parametrize("name", COMMANDS)
def test_loaded_command_has_its_name_and_options(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert command.params
    assert name in {info.name for info in app.registered_commands}


def test_help_of_the_program_loads_no_command() -> None:
    code = (
        "import sys; from sim.cli import main; main(['--help']);"
        "loaded = sorted(m for m in sys.modules if m.startswith('sim.'));"
        "allowed = ['sim.cli', 'sim.cli.program', 'sim.cli.usage', 'sim.errors'];"
        "assert loaded == allowed, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
