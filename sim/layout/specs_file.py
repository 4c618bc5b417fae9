"""Layers given one by one instead of a model: a JSON or YAML file to specs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sim.config import Count, Strict, validated
from sim.errors import ConfigError
from sim.layout.given_layer import MAX_LAYERS, GivenLayer, spec_of
from sim.layout.kv_cache_spec import KVCacheSpec
from sim.scenario_file import parse_yaml, read_text

Specs = Mapping[str, KVCacheSpec]


@dataclass(frozen=True, slots=True)
class SpecsFile:
    """Layers of a file: one mapping of layer name to spec for each worker, in order.

    name: the file's stem. mamba_cache_mode: what the file says, None if it does not.
    """

    name: str
    specs_by_worker: tuple[Specs, ...]
    mamba_cache_mode: str | None = None


class _Entry(GivenLayer):
    """One bucket: a layer and how many there are of it."""

    layers: Count = 1


class _Layers(Strict):
    """A list of entries, as ``sim_input`` of spec/real_logs.json."""

    layers: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_LAYERS)]
    mamba_cache_mode: Literal["none", "align", "all"] | None = None
    num_speculative_blocks: Annotated[int, Field(ge=0, le=2**20)] = 0


class _Workers(Strict):
    """Named specs and the layers of each worker, as a case of spec/golden_layout_specs.json."""

    specs: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    workers: Annotated[list[list[list[str]]], Field(min_length=1)]
    mamba_cache_mode: Literal["none", "align", "all"] | None = None


_IGNORED = {"index", "name", "key", "model_file", "input", "settings", "note"}


def load_specs(path: Path) -> SpecsFile:
    """Return the layers that a file describes; nothing in it is executed.

    Raises
    ------
    ConfigError
        An unreadable file, or one line for each wrong entry: ``FILE:layers[2].page_bytes``.
    """
    return specs_from(_parsed(path), path.stem, str(path))


def specs_from(data: Any, name: str, origin: str = "specs") -> SpecsFile:
    """Return the layers of parsed data; ``origin`` names it in errors.

    Three forms: a list of entries; a mapping whose ``layers`` is that list, with
    ``mamba_cache_mode`` and ``num_speculative_blocks``; a mapping of ``specs`` by name and
    ``workers``, each a list of pairs (layer name, name of its spec).

    Each entry of a list is a bucket of its own, in order, even where two are equal. In the form
    with names, layers of equal specs are one bucket.
    """
    if isinstance(data, list):
        data = {"layers": data}
    if isinstance(data, dict) and "specs" in data:
        return _from_workers(validated(_Workers, _without_comments(data), origin), name, origin)
    given = validated(_Layers, data, origin)
    return SpecsFile(name, (_from_entries(given, origin),), given.mamba_cache_mode)


def _without_comments(data: dict[str, Any]) -> dict[str, Any]:
    """A case of the golden file also says what it is for."""
    return {key: value for key, value in data.items() if key not in _IGNORED}


def _parsed(path: Path) -> Any:
    text = read_text(path)
    if not text.lstrip().startswith(("{", "[")):
        return parse_yaml(text, str(path))
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigError.one(str(path), "nested too deeply", "a list of layers") from None
    except ValueError:  # a YAML flow style that is no JSON; its errors name the line
        return parse_yaml(text, str(path))


def _from_entries(given: _Layers, origin: str) -> dict[str, KVCacheSpec]:
    specs: dict[str, KVCacheSpec] = {}
    seen: Counter[str] = Counter()
    buckets: list[KVCacheSpec] = []
    for idx, data in enumerate(given.layers):
        key = f"{origin}:layers[{idx}]"
        entry = validated(_Entry, data, key)
        if len(specs) + entry.layers > MAX_LAYERS:
            raise ConfigError.one(f"{key}.layers", entry.layers, f"{MAX_LAYERS} layers in all")
        spec = spec_of(_with_speculation(entry, given.num_speculative_blocks), key)
        spec = _own_bucket(spec, buckets)
        buckets.append(spec)
        for _ in range(entry.layers):
            specs[f"{entry.kind}.{seen[entry.kind]}"] = spec
            seen[entry.kind] += 1
    return specs


def _with_speculation(entry: _Entry, blocks: int) -> _Entry:
    if entry.is_recurrent and entry.num_speculative_blocks is None:
        return entry.model_copy(update={"num_speculative_blocks": blocks})
    return entry


def _own_bucket(spec: KVCacheSpec, buckets: list[KVCacheSpec]) -> KVCacheSpec:
    """Return a spec that equals none before it: equal fields of an equal class are one bucket.

    An empty subclass has all the rules of its kind, and specs of different classes never compare
    equal (spec/layout.md 0).
    """
    while spec in buckets:
        kind = type(spec)
        values = {field.name: getattr(spec, field.name) for field in fields(spec)}
        spec = type(kind.__name__, (kind,), {"__doc__": kind.__doc__})(**values)
    return spec


def _from_workers(given: _Workers, name: str, origin: str) -> SpecsFile:
    specs = {
        key: spec_of(validated(GivenLayer, data, f"{origin}:specs.{key}"), f"{origin}:specs.{key}")
        for key, data in given.specs.items()
    }
    workers = tuple(
        _worker(pairs, specs, f"{origin}:workers[{idx}]") for idx, pairs in enumerate(given.workers)
    )
    return SpecsFile(name, workers, given.mamba_cache_mode)


def _worker(
    pairs: list[list[str]], specs: Mapping[str, KVCacheSpec], key: str
) -> dict[str, KVCacheSpec]:
    layers: dict[str, KVCacheSpec] = {}
    for idx, pair in enumerate(pairs):
        if len(pair) != 2 or pair[0] in layers:
            raise ConfigError.one(f"{key}[{idx}]", str(pair), "a new layer name and a spec's name")
        if pair[1] not in specs:
            raise ConfigError.unknown(f"{key}[{idx}]", pair[1], specs)
        layers[pair[0]] = specs[pair[1]]
    return layers
