"""The attention kinds: which manager serves which spec; one line per kind."""

from __future__ import annotations

from typing import Any

from sim.core.attention.full import FullAttentionManager
from sim.core.attention.mamba import MambaManager
from sim.core.attention.sliding_window import SlidingWindowManager
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.errors import ConfigError
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MemoryLimits,
    SlidingWindowSpec,
)

ATTENTION_KINDS: dict[type[KVCacheSpec], type[SingleTypeKVCacheManager]] = {
    FullAttentionSpec: FullAttentionManager,
    SlidingWindowSpec: SlidingWindowManager,
    MambaSpec: MambaManager,
}


def manager_class(kv_cache_spec: KVCacheSpec) -> type[SingleTypeKVCacheManager]:
    """Return the manager of a spec, looked up along its class hierarchy."""
    for kind in type(kv_cache_spec).__mro__:
        if kind in ATTENTION_KINDS:
            return ATTENTION_KINDS[kind]
    known = ", ".join(kind.__name__ for kind in ATTENTION_KINDS)
    allowed = f"a kind that can be simulated, not only planned; known: {known}"
    raise ConfigError.one("attention kind", type(kv_cache_spec).__name__, allowed)


def get_manager_for_kv_cache_spec(
    kv_cache_spec: KVCacheSpec, limits: MemoryLimits, **kwargs: Any
) -> SingleTypeKVCacheManager:
    """Build the manager of one group; windows bound what a request can hold at once.

    Source: spec/manager.md 3 (factory).
    """
    bound = getattr(kv_cache_spec, "max_admission_blocks", None)
    cap = bound(limits) if bound else None
    return manager_class(kv_cache_spec)(
        kv_cache_spec, max_admission_blocks_per_request=cap, **kwargs
    )
