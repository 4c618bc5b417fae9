"""Usage errors in the project's one form: where, what, what is allowed, what may be meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import typer

from sim.errors import ConfigError

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""typer's base of usage errors; it has no public name in every version."""


def as_config_error(error: Any) -> ConfigError:
    """Return what is wrong with the command line as a ConfigError of one problem."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "kvsim"
    message = " ".join(str(error.format_message()).split())
    option = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)
    if option is not None:
        return _option(command, option, message, context)
    if parameter is not None:
        return _value(parameter, message, missing=message.startswith("Missing"))
    if message.startswith("No such command"):
        name = re.findall(r"'(.*?)'", message)[0]
        return ConfigError.unknown(command, name, context.command.commands)
    if message.startswith("Missing command"):
        known = ", ".join(context.command.commands)
        return ConfigError.one(command, "no command", f"known: {known}; or --help")
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
    if extra is None:
        return ConfigError.one(command, message, f"see {command} --help")
    count = "one argument" if len(extra[1].split()) == 1 else "arguments"
    return ConfigError.one(command, extra[1], f"{count} too many, see {command} --help")


def _option(command: str, option: str, message: str, context: Any) -> ConfigError:
    if "requires an argument" in message:
        return ConfigError.one(option, "missing", "a value is needed")
    if "does not take a value" in message:
        return ConfigError.one(option, "a value", "no value: the option stands alone")
    allowed = f"an option of {command} (see its --help)"
    return ConfigError.one(command, option, allowed, nearest_option(option, _option_names(context)))


def nearest_option(option: str, known: Iterable[str]) -> str | None:
    """Return the option that is meant, None if none is near: one that begins so, or a slip.

    Dashes do not count, all options have them; short words have much in common by chance, so more
    is asked for than of other names.

    >>> nearest_option("--fromat", ["--force", "--format"]), nearest_option("--format", ["--force"])
    ('--format', None)
    """
    names = {name.lstrip("-"): name for name in known}
    word = option.lstrip("-")
    longer = [name for name in names if len(word) > 2 and name.startswith(word)]
    found = longer[:1] or difflib.get_close_matches(word, list(names), n=1, cutoff=0.7)
    return names[found[0]] if found else None


def _option_names(context: Any) -> list[str]:
    parameters = context.command.params if context else []
    names = [n for p in parameters for n in (*p.opts, *p.secondary_opts) if n.startswith("-")]
    return [*names, "--help"]


def _value(parameter: Any, message: str, missing: bool) -> ConfigError:
    is_argument = parameter.param_type_name == "argument"
    name = (parameter.metavar or parameter.name.upper()) if is_argument else parameter.opts[0]
    if missing:
        return ConfigError.one(name, "missing", "a value is needed")
    allowed = message.rpartition(": ")[2].rstrip(".").removeprefix("Input should be ")
    return ConfigError.one(name, "given", allowed)
