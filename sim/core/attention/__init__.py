"""The attention kinds: which manager serves which spec; one line per kind."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sim.core.attention.chunked_local import ChunkedLocalAttentionManager
from sim.core.attention.cross import CrossAttentionManager
from sim.core.attention.full import FullAttentionManager
from sim.core.attention.mamba import MambaManager
from sim.core.attention.rswa import RSWAManager
from sim.core.attention.sink import SinkFullAttentionManager
from sim.core.attention.sliding_window import SlidingWindowManager
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.errors import ConfigError
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MemoryLimits,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
    UniformTypeKVCacheSpecs,
)

ATTENTION_KINDS: dict[type[KVCacheSpec], type[SingleTypeKVCacheManager]] = {
    FullAttentionSpec: FullAttentionManager,
    TQFullAttentionSpec: FullAttentionManager,
    MLAAttentionSpec: FullAttentionManager,
    HiddenStateCacheSpec: FullAttentionManager,
    RSWASpec: RSWAManager,
    SinkFullAttentionSpec: SinkFullAttentionManager,
    SlidingWindowSpec: SlidingWindowManager,
    SlidingWindowMLASpec: SlidingWindowManager,
    ChunkedLocalAttentionSpec: ChunkedLocalAttentionManager,
    MambaSpec: MambaManager,
    CrossAttentionSpec: CrossAttentionManager,
}


def register_attention_kind(
    spec_class: type[KVCacheSpec], manager_class: type[SingleTypeKVCacheManager]
) -> None:
    """Let a manager serve a kind of spec, and those derived from it that have no line of their own.

    Raises ConfigError if the kind is served already.
    """
    if spec_class in ATTENTION_KINDS:
        allowed = f"a kind without a manager; this one has {ATTENTION_KINDS[spec_class].__name__}"
        raise ConfigError.one("attention kind", spec_class.__name__, allowed)
    ATTENTION_KINDS[spec_class] = manager_class


def manager_class(kv_cache_spec: KVCacheSpec) -> type[SingleTypeKVCacheManager]:
    """Return the manager of a spec, looked up along its class hierarchy; a bundle has its layers'.

    Raises ConfigError for a kind without a manager, and for a bundle of several.
    """
    if isinstance(kv_cache_spec, UniformTypeKVCacheSpecs):
        return _manager_of_all(kv_cache_spec)
    for kind in type(kv_cache_spec).__mro__:
        if kind in ATTENTION_KINDS:
            return ATTENTION_KINDS[kind]
    known = ", ".join(kind.__name__ for kind in ATTENTION_KINDS)
    allowed = f"a kind that can be simulated, not only planned; known: {known}"
    raise ConfigError.one("attention kind", type(kv_cache_spec).__name__, allowed)


def _manager_of_all(bundle: UniformTypeKVCacheSpecs) -> type[SingleTypeKVCacheManager]:
    found = {manager_class(spec) for spec in bundle.count_by_spec}
    if len(found) > 1:
        names = ", ".join(sorted(manager.__name__ for manager in found))
        raise ConfigError.one("attention kind", names, "one kind of layers in a bundle")
    return found.pop()


def check_attention_kind(kv_cache_spec: KVCacheSpec, fixes: Set[str] = frozenset()) -> None:
    """Raise ConfigError if no manager can be built for the spec."""
    manager_class(kv_cache_spec).check_spec(kv_cache_spec, fixes)


def get_manager_for_kv_cache_spec(
    kv_cache_spec: KVCacheSpec, limits: MemoryLimits, **kwargs: Any
) -> SingleTypeKVCacheManager:
    """Build the manager of one group; windows bound what a request can hold at once.

    A spec that bounds it has ``max_admission_blocks``. Source: spec/manager.md 3 (factory).
    """
    bound = getattr(kv_cache_spec, "max_admission_blocks", None)
    cap = bound(limits) if bound else None
    return manager_class(kv_cache_spec)(
        kv_cache_spec, max_admission_blocks_per_request=cap, **kwargs
    )
