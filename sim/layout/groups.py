"""The decision tree from specs to groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.errors import ConfigError, InvariantError
from sim.layout.grouping import Bucket, GroupingHeuristic, GroupingPlan
from sim.layout.kv_cache_config import KVCacheGroupSpec
from sim.layout.kv_cache_spec import KVCacheSpec
from sim.layout.page_size import equalise_page_sizes

Groups = tuple[KVCacheGroupSpec, ...]


def merge(specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
    """Return one spec for all, or None if they do not merge (test U1). Source: layout.md 2.4."""
    return specs[0].merged_with(specs[1:])


def is_one_type(specs: Sequence[KVCacheSpec]) -> bool:
    """True if all could share one block table, each with its own page (test U2)."""
    first = specs[0]
    return all(s.block_size == first.block_size and first.accepts_type(s) for s in specs)


def group_layers(
    specs: Mapping[str, KVCacheSpec], heuristic: GroupingHeuristic
) -> tuple[Groups, list[str]]:
    """Return the groups of a model and the log lines of planning them.

    Parameters
    ----------
    specs : layer name to spec, in order of registration; not empty
    heuristic : asked only if the layers neither merge nor are of one type

    Raises
    ------
    ConfigError
        Layers of one type and different shapes (a bundle, not supported yet), or pages that
        cannot be made equal.

    Source: spec/layout.md 6.
    """
    ordered = list(specs.values())
    merged = merge(ordered)
    if merged is not None:
        return (KVCacheGroupSpec(tuple(specs), merged),), []
    if is_one_type(ordered):
        shapes = f"{len(set(ordered))} shapes of {ordered[0].kind} layers"
        raise ConfigError.one("model", shapes, "a bundle of unequal layers is not supported yet")
    buckets = bucket_by_spec(equalise_page_sizes(specs))
    plan = heuristic(buckets)
    return _groups_of(plan, buckets), padding_lines(plan, buckets)


def bucket_by_spec(specs: Mapping[str, KVCacheSpec]) -> list[Bucket]:
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
