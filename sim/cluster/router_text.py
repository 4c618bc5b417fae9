"""Routers in one line, as ``--router`` takes them: NAME[:KEY=VALUE,...], several with commas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sim.cluster.config import RouterPlugin
from sim.cluster.routers import ROUTERS
from sim.errors import ConfigError
from sim.scenario_file import parse_yaml

KEY = "--router"
ALL = "all"


def router_text(plugin: RouterPlugin) -> str:
    """Return a router with the parameters that do not have their default.

    >>> router_text(RouterPlugin(name="prefix_aware", params={"delay_ms": 50.0, "groups": "all"}))
    'prefix_aware:delay_ms=50'
    """
    defaults = ROUTERS[plugin.name].params().model_dump(mode="json")
    given = {key: value for key, value in plugin.params.items() if value != defaults.get(key)}
    pairs = ",".join(f"{key}={_short(value)}" for key, value in given.items())
    return f"{plugin.name}:{pairs}" if pairs else plugin.name


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_routers(
    texts: Iterable[str], common: Mapping[str, Any], start: RouterPlugin
) -> list[RouterPlugin]:
    """Return the routers that the texts name; ``all`` means each one of the table.

    common : parameters for all of those that have them; one that none has is an error
    start : a router that is named without parameters of its own has these, if it is the same one

    >>> [router_text(r) for r in read_routers(["session,least_loaded:by=requests"], {},
    ...                                       RouterPlugin())]
    ['session', 'least_loaded']
    """
    named = [entry for text in texts for entry in _entries(text)] or [(start.name, {})]
    for key in common:
        if not any(key in ROUTERS[name].params.model_fields for name, _ in named):
            names = ", ".join(dict.fromkeys(name for name, _ in named))
            raise ConfigError.one("--router-param", key, f"a parameter of {names}")
    return [_plugin(name, params, common, start) for name, params in named]


def _plugin(
    name: str, params: Mapping[str, Any], common: Mapping[str, Any], start: RouterPlugin
) -> RouterPlugin:
    known = ROUTERS[name].params.model_fields
    inherited = start.params if start.name == name else {}
    shared = {key: value for key, value in common.items() if key in known}
    return RouterPlugin(name=name, params={**inherited, **shared, **params})


def _entries(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Split at commas; ``KEY=VALUE`` behind one belongs to the router before it."""
    if text == ALL:
        yield from ((name, {}) for name in ROUTERS)
        return
    found: list[tuple[str, dict[str, Any]]] = []
    for part in text.split(","):
        name, colon, pair = part.partition(":")
        if colon or "=" not in part:
            found.append((name, {}))
        if not found or (colon and not pair):
            raise ConfigError.one(KEY, text, "NAME[:KEY=VALUE,...], several with commas")
        if "=" in part:
            found[-1][1].update([_pair(pair if colon else part)])
        elif colon:
            raise ConfigError.one(KEY, part, "KEY=VALUE behind the colon")
    yield from found


def _pair(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, parse_yaml(value, f"{KEY} {key}")
