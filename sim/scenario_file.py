"""Scenario files: safe YAML in, validated scenarios out, and back to YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from sim.config import Scenario, validated
from sim.errors import ConfigError

MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 32

_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]{1,19}", list("-+0123456789")),
    "float": (
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        list("-+.0123456789"),
    ),
}


def load_scenario(path: str | Path) -> dict[str, Any]:
    """Return the plain data of a scenario file, its keys not yet checked.

    Raises
    ------
    ConfigError
        The file cannot be read, is not UTF-8 text, is larger than 256 KiB, or is not one mapping
        in YAML without aliases, tags and repeated keys. The key is ``file:line``.
    """
    data = parse_yaml(read_text(Path(path)), str(path))
    if not isinstance(data, dict):
        raise ConfigError.one(str(path), data, "a mapping of keys to values")
    return data


def read_text(path: Path) -> str:
    """Return the text of a small UTF-8 file; anything else is a ConfigError."""
    try:
        if path.is_fifo():
            raise ConfigError.one("file", str(path), "a regular file, not a pipe")
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError.one("file", str(path), f"a file that can be read ({reason})") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError.one("file", str(path), f"at most {MAX_FILE_BYTES // 1024} KiB of text")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError.one(
            "file", str(path), f"UTF-8 text (byte {error.start} is not)"
        ) from None


def parse_yaml(text: str, key: str) -> Any:
    """Return the plain data in one YAML document; the scalars are those of YAML 1.2's core schema.

    So ``1e3`` is a number, and ``no``, ``012``, ``1:30`` and ``2024-01-01`` are not something else
    than they look like. Nothing in the text is executed.
    """
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError.one(f"{key}:{line}", error.problem or "", "plain YAML") from None
    except yaml.YAMLError as error:
        raise ConfigError.one(key, str(error), "printable YAML text") from None
    finally:
        if loader is not None:
            loader.dispose()


def scenario_from(flags: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> Scenario:
    """Return the scenario that ``base`` (a file's data) means once ``flags`` override its keys.

    Parameters
    ----------
    flags : dotted key to value, such as ``{"cache.block_size": 32}``; a plug-in's parameters are
        ``workload.params.NAME`` and ``latency.params.NAME``. Another plug-in's name than the base's
        drops the base's parameters of that plug-in: they belong to the old one.

    Raises
    ------
    ConfigError
        One line per wrong key or value.
    """
    data = deepcopy(dict(base or {}))
    for plugin in ("workload", "latency"):
        _rename_plugin(data, plugin, flags.get(f"{plugin}.name"))
    for key, value in flags.items():
        _set(data, key, value)
    return validated(Scenario, data)


def _rename_plugin(data: dict[str, Any], plugin: str, name: str | None) -> None:
    section = data.get(plugin)
    if name is not None and isinstance(section, dict) and section.get("name") != name:
        data[plugin] = {"name": name}


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    path: list[str] = []
    for section in sections:
        path.append(section)
        data = data.setdefault(section, _start(path))
        if not isinstance(data, dict):
            raise ConfigError.one(".".join(path), data, "a mapping of keys to values")
    data[last] = value


def _start(path: list[str]) -> dict[str, Any]:
    """A plug-in that a flag gives parameters to keeps its default name."""
    if path in (["workload"], ["latency"]):
        return {"name": Scenario.model_fields[path[0]].default.name}
    return {}


def scenario_yaml(scenario: Scenario) -> str:
    """Return the scenario as YAML with every key; ``load_scenario`` reads it back unchanged."""
    return yaml.dump(
        scenario.model_dump(mode="json"),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=10_000,
    )


class _Loader(yaml.SafeLoader):
    """SafeLoader with few scalar types; refuses aliases, repeated keys and deep nesting."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _refused("an alias or anchor is not allowed here", event)
        if self.depth >= MAX_DEPTH:
            raise _refused(f"more than {MAX_DEPTH} levels", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                raise _refused("a key that is not text", key_node)
            if key in seen:
                raise _refused(f"the key {key} appears twice", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_int(self, node: Any) -> int:
        return self._number(node, int)

    def construct_float(self, node: Any) -> float:
        return self._number(node, float)

    def _number(self, node: Any, kind: type) -> Any:
        try:
            value = kind(self.construct_scalar(node))
        except ValueError:
            raise _refused(f"not a number: {node.value[:40]}", node) from None
        if not math.isfinite(value):
            raise _refused(f"too large a number: {node.value[:40]}", node)
        return value

    def refuse_tag(self, node: Any) -> Any:
        raise _refused(f"a tag is not allowed here: {node.tag}", node)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes the texts which only ``_Loader`` takes for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """Escape what cannot be seen: single quotes would fold a Unicode line break."""
        style = None if data.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


def _refused(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def _fill_tables() -> None:
    tags = {name: f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "str", "seq", "map")}
    _Loader.yaml_constructors = {
        tag: yaml.SafeLoader.yaml_constructors[tag] for tag in tags.values()
    }
    _Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_int)
    _Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_float)
    _Loader.add_constructor(None, _Loader.refuse_tag)
    for name, (pattern, first) in _SCALARS.items():
        rule = re.compile(f"(?:{pattern})\\Z")
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", rule, first)
        _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{name}", rule, first)
    _Dumper.add_representer(str, _Dumper.text)


_fill_tables()
