"""The coordinators of the plain cases: one group, or nothing cached."""

from __future__ import annotations

from collections.abc import Sequence, Set

from sim.core.attention.chunked_local import ChunkedLocalAttentionManager
from sim.core.kv_cache_coordinator import (
    Coarse,
    CoordinatorSettings,
    KVCacheCoordinator,
    Rows,
)
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheConfig


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Any number of groups, nothing cached. Source: spec/manager.md 4.2."""

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Return zeros: without caching no block is shared."""
        return [0] * len(self.single_type_managers)


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """Exactly one group. Source: spec/manager.md 4.3, D.1."""

    def __init__(self, kv_cache_config: KVCacheConfig, settings: CoordinatorSettings):
        super().__init__(kv_cache_config, settings)
        (self._only,) = self.single_type_managers
        if self.hash_block_size != self._only.block_size:
            raise ConfigError.one(
                "hash_block_size", self.hash_block_size, f"{self._only.block_size}: the only group"
            )
        self._only.use_eagle = 0 in self.eagle_group_ids
        self._only.check_lookups(self._only.block_size)
        require_evidence(self.single_type_managers, settings.fixes)

    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_cache_hit_length: int,
        coarse: Coarse | None = None,
    ) -> tuple[Rows, int]:
        """Ask the only manager."""
        only = self._only
        rows = only.find_longest_cache_hit(
            prefix_ids, max_cache_hit_length, (0,), only.use_eagle, only.block_size
        )
        return rows, len(rows[0]) * only.block_size


def require_evidence(managers: Sequence[SingleTypeKVCacheManager], fixes: Set[str]) -> None:
    """Where nothing else bounds a hit, let chunked local groups show what they claim (Q8)."""
    chunked = [m for m in managers if isinstance(m, ChunkedLocalAttentionManager)]
    if "Q8" in fixes and len(chunked) == len(managers):
        for manager in chunked:
            manager.needs_evidence = True
