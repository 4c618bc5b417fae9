"""DeepSeek-V4: one bundle of latent caches and several of windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    UniformTypeKVCacheSpecs,
)
from sim.layout.kv_cache_spec.mla import DEEPSEEK_V4
from sim.layout.uniformity import is_one_type
from sim.units import cdiv

Specs = Mapping[str, KVCacheSpec]


def group_latent_windows(specs: Specs, *, is_eagle: bool = False) -> tuple[KVCacheGroupSpec, ...]:
    """Return one bundle of all latent layers, and bundles of each set of windows.

    Raises
    ------
    ConfigError
        No latent layer, layers of another kind, sets that are not of one type, or pages that do
        not fit into the latent ones'.

    Source: spec/layout.md 6.3.
    """
    main = {n: s for n, s in specs.items() if isinstance(s, MLAAttentionSpec)}
    sets = _window_sets(specs)
    _check(specs, main)
    chunk = tuples_per_group(_tuples(main), [_tuples(windows) for windows in sets])
    groups = [_bundle(main)]
    for windows in sets:
        padded = _padded(windows, {spec.page_size_bytes for spec in main.values()})
        groups += [_bundle(part) for part in _split(padded, chunk)]
    return tuple(_with_eagle_flag(groups, specs) if is_eagle else groups)


def tuples_per_group(main: int, others: Sequence[int]) -> int:
    """Return how many tuples a group of windows gets at most.

    The size from ``main`` up that rounds all sets up least; of several the largest.

    >>> tuples_per_group(21, [43, 21, 20]), tuples_per_group(3, [10, 4]), tuples_per_group(7, [5])
    (22, 5, 7)
    """
    sets = (main, *others)
    return min(
        range(main, max(sets) + 1), key=lambda size: (sum(-count % size for count in sets), -size)
    )


def _window_sets(specs: Specs) -> list[dict[str, KVCacheSpec]]:
    """Windowed layers by block size and window, in first-seen order."""
    sets: dict[tuple[int, int], dict[str, KVCacheSpec]] = {}
    for name, spec in specs.items():
        if isinstance(spec, SlidingWindowMLASpec):
            sets.setdefault((spec.block_size, spec.sliding_window), {})[name] = spec
    return list(sets.values())


def _check(specs: Specs, main: Specs) -> None:
    kinds = (MLAAttentionSpec, SlidingWindowMLASpec)
    foreign = [name for name, spec in specs.items() if not isinstance(spec, kinds)]
    if foreign:
        text = "Some layers are not assigned to any group."
        raise ConfigError.one("model", ", ".join(foreign), text)
    if not main or not is_one_type(list(main.values())):
        allowed = "at least one latent cache beside latent windows, all of one block size"
        raise ConfigError.one("model", f"{len(main)} latent caches", allowed)


def _tuples(specs: Specs) -> int:
    return max(Counter(spec.page_size_bytes for spec in specs.values()).values())


def _padded(windows: Specs, pages: set[int]) -> dict[str, KVCacheSpec]:
    """Pages padded to the nearest latent page that is not smaller."""
    padded: dict[str, KVCacheSpec] = {}
    for name, spec in windows.items():
        fitting = [page for page in pages if page >= spec.page_size_bytes]
        if not fitting:
            allowed = f"at most the largest latent page of {max(pages)} bytes"
            raise ConfigError.one("model", f"{name}: {spec.page_size_bytes} bytes", allowed)
        padded[name] = spec.padded_to(min(fitting))  # type: ignore[attr-defined]
    return padded


def _split(windows: Specs, chunk: int) -> list[dict[str, KVCacheSpec]]:
    """Every group takes each so-manieth tuple: one layer of each page size."""
    classes: dict[int, list[str]] = {}
    for name, spec in windows.items():
        classes.setdefault(spec.page_size_bytes, []).append(name)
    lengths = {len(names) for names in classes.values()}
    if len(lengths) != 1:
        allowed = "as many windowed layers of each page size"
        raise ConfigError.one("model", f"{sorted(lengths)} layers", allowed)
    tuples = list(zip(*classes.values(), strict=True))
    count = cdiv(len(tuples), chunk)
    parts = [[name for names in tuples[first::count] for name in names] for first in range(count)]
    return [{name: windows[name] for name in names} for names in parts]


def _bundle(specs: Specs) -> KVCacheGroupSpec:
    return KVCacheGroupSpec(tuple(specs), UniformTypeKVCacheSpecs.of(specs))


def _with_eagle_flag(groups: Sequence[KVCacheGroupSpec], specs: Specs) -> list[KVCacheGroupSpec]:
    """The group of the last layer is the drafts', in a model of that version."""
    version = any(getattr(s, "model_version", None) == DEEPSEEK_V4 for s in specs.values())
    last = list(specs)[-1]
    return [
        KVCacheGroupSpec(g.layer_names, g.kv_cache_spec, version and last in g.layer_names)
        for g in groups
    ]
