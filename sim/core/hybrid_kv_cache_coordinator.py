"""The coordinator of several groups: the longest prefix that all of them can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.core.kv_cache_coordinator import (
    Coarse,
    CoordinatorSettings,
    KVCacheCoordinator,
    Rows,
)
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.core.unitary_kv_cache_coordinator import require_evidence
from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import KVCacheSpec
from sim.request import Request


@dataclass(slots=True)
class SpecGroup:
    """Groups with equal specs: they hit and miss together."""

    spec: KVCacheSpec
    group_ids: list[int]
    manager: SingleTypeKVCacheManager
    use_eagle: bool

    @property
    def is_full_attention(self) -> bool:
        """True if hits of a longer prefix hold for every shorter one."""
        return self.manager.is_prefix_closed


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """Two or more distinct specs; hits are found by iterating to a fixed point.

    Source: spec/manager.md 4.4 (vLLM 0.25.1 ``HybridKVCacheCoordinator``), Q1 and Q3 included.
    """

    def __init__(self, kv_cache_config: KVCacheConfig, settings: CoordinatorSettings):
        if settings.limits.context_parallel_size != 1:
            allowed = "1 with several KV cache groups"
            key = "context_parallel_size"
            raise ConfigError.one(key, settings.limits.context_parallel_size, allowed)
        super().__init__(kv_cache_config, settings)
        self.attention_groups = self._split_by_spec()
        self._truncates_all = "Q3" in settings.fixes
        for manager in self.single_type_managers:
            if manager.block_size % self.hash_block_size:
                raise ConfigError.one(
                    "hash_block_size", self.hash_block_size, f"a divisor of {manager.block_size}"
                )
        for entry in self.attention_groups:
            for group_id in entry.group_ids:
                self.single_type_managers[group_id].use_eagle = entry.use_eagle
        self._has_eagle = any(e.use_eagle for e in self.attention_groups)
        for manager in self.single_type_managers:
            manager.check_lookups(self.scheduler_block_size)
        require_evidence(self.single_type_managers, settings.fixes)

    def _split_by_spec(self) -> list[SpecGroup]:
        entries: list[SpecGroup] = []
        for group_id, manager in enumerate(self.single_type_managers):
            is_eagle = group_id in self.eagle_group_ids
            same = next((e for e in entries if e.spec == manager.kv_cache_spec), None)
            if same:
                same.group_ids.append(group_id)
                same.use_eagle |= is_eagle
            else:
                entries.append(SpecGroup(manager.kv_cache_spec, [group_id], manager, is_eagle))
        if len(entries) < 2:
            raise ConfigError.one(
                "kv_cache_groups",
                len(self.single_type_managers),
                "at least two distinct specs with prefix caching on and several groups",
            )
        return sorted(entries, key=lambda e: not e.is_full_attention)

    # -- lookup --------------------------------------------------------------------------
    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_cache_hit_length: int,
        coarse: Coarse | None = None,
    ) -> tuple[Rows, int]:
        """Lower the bound until every spec agrees; full attention is looked up once."""
        search = _Search(self, coarse or _slices(prefix_ids), max_cache_hit_length)
        entries = self.attention_groups
        is_simple = len(entries) == 2 and entries[0].is_full_attention
        length = max_cache_hit_length
        while True:
            found = search.round(length)
            if found >= length:
                break
            length = found
            if is_simple:
                break
        search.truncate(length, self._truncates_all)
        self.num_uncached_common_prefix_tokens = search.longest - length
        rows = [search.rows.get(g, []) for g in range(len(self.single_type_managers))]
        return tuple(rows), length

    def find_longest_cache_hit_per_group(
        self, prefix_ids: Sequence[int], max_cache_hit_length: int
    ) -> tuple[Rows, list[int]]:
        """Look up each spec by itself, at the whole length."""
        search = _Search(self, _slices(prefix_ids), max_cache_hit_length)
        for place, entry in enumerate(self.attention_groups):
            search.look_up(place, entry, max_cache_hit_length)
        managers = self.single_type_managers
        rows = tuple(search.rows[g] for g in range(len(managers)))
        return rows, [len(row) * m.block_size for row, m in zip(rows, managers, strict=True)]

    # -- registration ------------------------------------------------------------------------
    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register up to the last boundary that a hit may end at, one block more under EAGLE."""
        size = self.scheduler_block_size
        aligned = num_computed_tokens // size * size
        for group_id, manager in enumerate(self.single_type_managers):
            reach = aligned
            if manager.use_eagle and aligned > 0:
                reach = min(num_computed_tokens, aligned + manager.block_size)
            self._cache(manager, group_id, request, reach)

    def _next_registration(self, request_id: str) -> int:
        if self._has_eagle:
            return super()._next_registration(request_id)
        size = self.scheduler_block_size
        done = min(
            lane[0].num_cached_block.get(request_id, 0) * lane[0].block_size // size
            for lane in self._lanes
        )
        return (done + 1) * size


class _Search:
    """The state of one lookup: rows by group, and which EAGLE drops the bound has seen."""

    def __init__(self, coordinator: HybridKVCacheCoordinator, coarse: Coarse, max_length: int):
        self.entries = coordinator.attention_groups
        self.alignment = coordinator.scheduler_block_size
        self.hash_block_size = coordinator.hash_block_size
        self.max_length = max_length
        self.rows: dict[int, list[int]] = {}
        self.longest = 0
        self._verified: set[int] = set()
        self._prefix_ids_by = coarse

    def round(self, length: int) -> int:
        """Pass the bound through all entries once and return what is left of it."""
        for place, entry in enumerate(self.entries):
            size = entry.manager.block_size
            if entry.is_full_attention and entry.group_ids[0] in self.rows:
                length = length // size * size
                continue
            length = self.look_up(place, entry, length)
            self.longest = max(self.longest, length)
        return length

    def look_up(self, place: int, entry: SpecGroup, length: int) -> int:
        """Look up one entry below the bound and return what it has."""
        manager = entry.manager
        drop = entry.use_eagle and place not in self._verified
        limit = min(length + manager.block_size, self.max_length) if drop else length
        rows = manager.find_longest_cache_hit(
            self._prefix_ids_by(manager.block_size // self.hash_block_size),
            limit,
            entry.group_ids,
            drop,
            self.alignment,
        )
        found = len(rows[0]) * manager.block_size
        if drop:
            self._verified.add(place)
        elif found < length:
            self._verified.clear()
        self.rows.update(zip(entry.group_ids, rows, strict=True))
        return found

    def truncate(self, length: int, everywhere: bool) -> None:
        """Cut the rows of the first entry to the hit; other full entries keep theirs (Q3)."""
        entries = self.entries if everywhere else self.entries[:1]
        for entry in (e for e in entries if e.is_full_attention):
            for group_id in entry.group_ids:
                del self.rows.get(group_id, [])[length // entry.manager.block_size :]


def _slices(prefix_ids: Sequence[int]) -> Coarse:
    """Return every k-th identity where nobody keeps them."""
    views: dict[int, Sequence[int]] = {1: prefix_ids}

    def by(factor: int) -> Sequence[int]:
        if factor not in views:
            views[factor] = prefix_ids[factor - 1 :: factor]
        return views[factor]

    return by
