"""The decision tree from specs to groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.errors import ConfigError, InvariantError
from sim.layout.grouping import Bucket, GroupingHeuristic, GroupingPlan
from sim.layout.kv_cache_config import KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowMLASpec,
    UniformTypeKVCacheSpecs,
)
from sim.layout.multi_bundle import group_latent_windows
from sim.layout.page_size import equalise_page_sizes
from sim.layout.uniformity import is_one_type, merge

Groups = tuple[KVCacheGroupSpec, ...]
Specs = Mapping[str, KVCacheSpec]


def group_layers(
    specs: Specs,
    heuristic: GroupingHeuristic,
    *,
    is_eagle: bool = False,
) -> tuple[Groups, list[str]]:
    """Return the groups of a model and the log lines of planning them.

    Parameters
    ----------
    specs : layer name to spec, in order of registration; without layers there are no groups
    heuristic : asked only if the layers neither merge nor are of one type
    is_eagle : speculation is of the EAGLE type

    Raises
    ------
    ConfigError
        Pages that cannot be made equal, layers that no group takes, two windows in one group.

    Source: spec/layout.md 6.
    """
    if not specs:
        return (), []
    check_pages(specs)
    ordered = list(specs.values())
    merged = merge(ordered)
    if merged is not None:
        return (KVCacheGroupSpec(tuple(specs), merged),), []
    if is_one_type(ordered):
        return (KVCacheGroupSpec(tuple(specs), UniformTypeKVCacheSpecs.of(specs)),), []
    if any(isinstance(spec, SlidingWindowMLASpec) for spec in ordered):
        return group_latent_windows(specs, is_eagle=is_eagle), []
    return _uniform_pages(specs, heuristic)


def _uniform_pages(specs: Specs, heuristic: GroupingHeuristic) -> tuple[Groups, list[str]]:
    """Groups of equal pages; hidden states are set aside and get a group each."""
    hidden = {n: s for n, s in specs.items() if isinstance(s, HiddenStateCacheSpec)}
    others = {name: spec for name, spec in specs.items() if name not in hidden}
    buckets = bucket_by_spec(equalise_page_sizes(others))
    plan = heuristic(buckets)
    groups = _groups_of(plan, buckets)
    page = groups[0].kv_cache_spec.page_size_bytes
    own = tuple(KVCacheGroupSpec((n,), _fitted(n, spec, page)) for n, spec in hidden.items())
    return (*groups, *own), padding_lines(plan, buckets)


def _fitted(name: str, spec: HiddenStateCacheSpec, page: int) -> KVCacheSpec:
    """As many tokens as the common page holds. Source: spec/layout.md 6.6."""
    token = spec.num_kv_heads * spec.head_size * spec.dtype_bytes
    if token > page:
        allowed = f"at most the common page of {page} bytes for the hidden state of one token"
        raise ConfigError.one("model", f"{name}: {token} bytes", allowed)
    return replace(spec, block_size=max(page // token, 1), page_size_padded=page)


def check_pages(specs: Specs) -> None:
    """Raise a ConfigError unless each page holds something and its padding is not less than that.

    Source: spec/layout.md 2.2, C9.
    """
    for name, spec in specs.items():
        real, page = spec.real_page_size_bytes, spec.page_size_bytes
        if page < real:
            kind = "a state" if isinstance(spec, MambaSpec) else "a page"
            allowed = f"at least the {real} bytes of {kind} of layer {name}"
            raise ConfigError.one("page_size_padded", page, allowed)
        if real <= 0:
            allowed = "layers whose pages hold at least one byte"
            raise ConfigError.one("model", f"{name}: a page of {real} bytes", allowed)


def bucket_by_spec(specs: Specs) -> list[Bucket]:
    """Return the layers by exact spec, buckets in first-seen order."""
    names_by_spec: dict[KVCacheSpec, list[str]] = {}
    for name, spec in specs.items():
        names_by_spec.setdefault(spec, []).append(name)
    return [Bucket(spec, tuple(names)) for spec, names in names_by_spec.items()]


def padding_lines(plan: GroupingPlan, buckets: Sequence[Bucket]) -> list[str]:
    """Return the warning of each bucket with padding layers.

    The order of operations in the percentage decides its last digit (spec/layout.md 15.15).
    """
    padded = [(plan.padding_of(bucket), len(bucket)) for bucket in buckets]
    return [
        f"Add {padding} padding layers, may waste at most "
        f"{padding / num_layers * 100:.2f}% KV cache memory"
        for padding, num_layers in padded
        if padding
    ]


def _groups_of(plan: GroupingPlan, buckets: Sequence[Bucket]) -> Groups:
    bucket_by_name = {name: bucket for bucket in buckets for name in bucket.layer_names}
    _check_partition(plan, bucket_by_name)
    return tuple(KVCacheGroupSpec(names, bucket_by_name[names[0]].spec) for names in plan.groups)


def _check_partition(plan: GroupingPlan, bucket_by_name: Mapping[str, Bucket]) -> None:
    placed = [name for names in plan.groups for name in names]
    mixed = [names for names in plan.groups if len({id(bucket_by_name[n]) for n in names}) != 1]
    if mixed or sorted(placed) != sorted(bucket_by_name):
        raise InvariantError(
            f"a grouping heuristic must place each of {len(bucket_by_name)} layers in one group of "
            f"its own spec: {len(placed)} placed, groups of several specs: {mixed}"
        )
