"""May layers share one spec, or at least one block table? The engine's two tests."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.kv_cache_spec import KVCacheSpec


def merge(specs: Sequence[KVCacheSpec]) -> KVCacheSpec | None:
    """Return one spec for all (test U1), or None if they do not merge; not empty.

    The first spec's class decides what is compared, so the order counts. A ConfigError about
    two windows passes through, as the engine's ValueError does. Source: spec/layout.md 2.4.
    """
    return specs[0].merged_with(specs[1:])


def is_one_type(specs: Sequence[KVCacheSpec]) -> bool:
    """Return whether all could share one block table, each with its own page (test U2)."""
    first = specs[0]
    return all(s.block_size == first.block_size and first.accepts_type(s) for s in specs)
