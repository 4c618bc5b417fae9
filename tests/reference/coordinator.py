"""Several tables on one pool, and the hit that all groups agree on. Source: spec/manager.md 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from sim.observer import Observer
from sim.request import Request
from tests.reference.attention import (
    FullAttentionManager,
    SingleTypeManager,
    SlidingWindowManager,
)
from tests.reference.mamba import MambaManager
from tests.reference.pool import BlockPool

Rows = tuple[list[int], ...]

MANAGERS: dict[type[KVCacheSpec], type[SingleTypeManager]] = {
    FullAttentionSpec: FullAttentionManager,
    SlidingWindowSpec: SlidingWindowManager,
    MambaSpec: MambaManager,
}


def coarse(prefix_ids: Sequence[int], hash_block_size: int, block_size: int) -> list[int]:
    """Return every k-th identity: those of prefixes that end at a multiple of block_size (2.5)."""
    k = block_size // hash_block_size
    return list(prefix_ids[k - 1 :: k])


class Coordinator:
    """What the three coordinators share (4.1)."""

    num_uncached_common_prefix_tokens = 0

    def __init__(
        self,
        config: KVCacheConfig,
        max_model_len: int,
        max_num_batched_tokens: int,
        use_eagle: bool,
        enable_caching: bool,
        scheduler_block_size: int,
        hash_block_size: int,
        retention_interval: int | None,
        observer: Observer,
    ):
        groups = config.kv_cache_groups
        specs = [group.kv_cache_spec for group in groups]
        assert scheduler_block_size % hash_block_size == 0
        assert all(scheduler_block_size % spec.block_size == 0 for spec in specs)
        self.scheduler_block_size = scheduler_block_size
        self.hash_block_size = hash_block_size
        self.retention_interval = retention_interval
        self._check_retention(specs)
        self.block_pool = BlockPool(config.num_blocks, len(groups), enable_caching, observer)
        self.single_type_managers: list[SingleTypeManager] = [
            MANAGERS[type(spec)](
                spec,
                group_id,
                self.block_pool,
                scheduler_block_size,
                max_model_len,
                max_num_batched_tokens,
            )
            for group_id, spec in enumerate(specs)
        ]
        flagged = {g for g, group in enumerate(groups) if group.is_eagle_group}
        everything = set(range(len(groups))) if use_eagle else set()
        self.eagle_group_ids = flagged or everything

    def _check_retention(self, specs: Sequence[KVCacheSpec]) -> None:
        retention = self.retention_interval
        if retention is None:
            return
        if not any(isinstance(spec, (SlidingWindowSpec, MambaSpec)) for spec in specs):
            raise ValueError("retention needs a sliding-window or mamba group")
        if retention < 0 or retention % self.scheduler_block_size:
            raise ValueError(f"retention {retention}: a multiple of {self.scheduler_block_size}")

    def ids_for(self, prefix_ids: Sequence[int], manager: SingleTypeManager) -> list[int]:
        return coarse(prefix_ids, self.hash_block_size, manager.block_size)

    def find_longest_cache_hit(self, prefix_ids: Sequence[int], max_length: int):
        raise NotImplementedError

    def get_num_blocks_to_allocate(
        self, request_id, num_tokens, hits: Rows, total_computed_tokens, main, capped
    ) -> int:
        return sum(
            manager.get_num_blocks_to_allocate(
                request_id, num_tokens, hits[g], total_computed_tokens, main, capped
            )
            for g, manager in enumerate(self.single_type_managers)
        )

    def allocate_new_computed_blocks(self, request_id: str, hits: Rows, num_tokens: int) -> None:
        if any(request_id in m.num_cached_block for m in self.single_type_managers):
            assert not any(hits)
            return
        for manager, row in zip(self.single_type_managers, hits, strict=True):
            manager.add_local_computed_blocks(request_id, row, num_tokens)

    def allocate_new_blocks(self, request_id: str, num_tokens: int, main: int) -> Rows:
        return tuple(
            manager.allocate_new_blocks(request_id, num_tokens, main)
            for manager in self.single_type_managers
        )

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        for manager in self.single_type_managers:
            self._cache_group(manager, request, num_computed_tokens)

    def _cache_group(self, manager, request: Request, num_tokens: int) -> None:
        known = request.prefix_ids[: request.num_tokens // self.hash_block_size]
        ids = self.ids_for(known, manager)
        manager.cache_blocks(request, ids, num_tokens, self.retention_interval)

    def free(self, request_id: str) -> None:
        for manager in self.single_type_managers:
            manager.free(request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def new_step_starts(self) -> None:
        for manager in self.single_type_managers:
            manager.new_step_starts()

    def get_num_common_prefix_blocks(self, request_id: str) -> list[int]:
        return [m.get_num_common_prefix_blocks(request_id) for m in self.single_type_managers]


class NoPrefixCacheCoordinator(Coordinator):
    """Caching off, any number of groups (4.2)."""

    def find_longest_cache_hit(self, prefix_ids, max_length):
        return tuple([] for _ in self.single_type_managers), 0

    def cache_blocks(self, request, num_computed_tokens):
        raise AssertionError("caching is off")

    def get_num_common_prefix_blocks(self, request_id):
        return [0 for _ in self.single_type_managers]


class UnitaryCoordinator(Coordinator):
    """One group (4.3)."""

    def __init__(self, *args):
        super().__init__(*args)
        (self.manager,) = self.single_type_managers
        assert self.manager.block_size == self.hash_block_size
        self.manager.use_eagle = 0 in self.eagle_group_ids

    def find_longest_cache_hit(self, prefix_ids, max_length):
        size = self.manager.block_size
        rows = self.manager.find_longest_cache_hit(
            prefix_ids, max_length, [0], self.manager.use_eagle, size
        )
        return rows, len(rows[0]) * size


@dataclass
class SpecGroup:
    """Groups with one spec; ``use_eagle`` if any of them is an eagle group."""

    spec: KVCacheSpec
    group_ids: list[int]
    use_eagle: bool

    @property
    def is_full(self) -> bool:
        return isinstance(self.spec, FullAttentionSpec)


class HybridCoordinator(Coordinator):
    """At least two distinct specs (4.4)."""

    def __init__(self, *args):
        super().__init__(*args)
        for manager in self.single_type_managers:
            assert manager.block_size % self.hash_block_size == 0
        self.attention_groups = self._split()
        assert len(self.attention_groups) >= 2
        for entry in self.attention_groups:
            for group_id in entry.group_ids:
                self.single_type_managers[group_id].use_eagle = entry.use_eagle

    def _split(self) -> list[SpecGroup]:
        entries: list[SpecGroup] = []
        for group_id, manager in enumerate(self.single_type_managers):
            eagle = group_id in self.eagle_group_ids
            for entry in entries:
                if entry.spec == manager.kv_cache_spec:
                    entry.group_ids.append(group_id)
                    entry.use_eagle = entry.use_eagle or eagle
                    break
            else:
                entries.append(SpecGroup(manager.kv_cache_spec, [group_id], eagle))
        full = [entry for entry in entries if entry.is_full]
        return full + [entry for entry in entries if not entry.is_full]

    def find_longest_cache_hit(self, prefix_ids, max_length):
        bound, longest = max_length, 0
        rows: dict[int, list[int]] = {}
        verified: list[int] = []
        simple = len(self.attention_groups) == 2 and self.attention_groups[0].is_full
        while True:
            current = bound
            for position, entry in enumerate(self.attention_groups):
                size = entry.spec.block_size
                if entry.is_full and entry.group_ids[0] in rows:
                    current = current // size * size
                    continue
                drop = entry.use_eagle and position not in verified
                limit = min(current + size, max_length) if drop else current
                found = self._lookup(entry, prefix_ids, limit, drop)
                length = len(found[0]) * size
                if drop:
                    verified.append(position)
                elif length < current:
                    verified = []
                current = length
                rows.update(zip(entry.group_ids, found, strict=True))
                longest = max(longest, current)
            if current >= bound:
                break
            bound = current
            if simple:
                break
        first = self.attention_groups[0]
        if first.is_full:
            for group_id in first.group_ids:
                rows[group_id] = rows[group_id][: bound // first.spec.block_size]
        self.num_uncached_common_prefix_tokens = longest - bound
        return tuple(rows.get(g, []) for g in range(len(self.single_type_managers))), bound

    def _lookup(self, entry: SpecGroup, prefix_ids, limit: int, drop: bool) -> Rows:
        manager = self.single_type_managers[entry.group_ids[0]]
        ids = self.ids_for(prefix_ids, manager)
        return manager.find_longest_cache_hit(
            ids, limit, entry.group_ids, drop, self.scheduler_block_size
        )

    def cache_blocks(self, request, num_computed_tokens):
        aligned = num_computed_tokens // self.scheduler_block_size * self.scheduler_block_size
        for manager in self.single_type_managers:
            num_tokens = aligned
            if manager.use_eagle and aligned > 0:
                num_tokens = min(num_computed_tokens, aligned + manager.block_size)
            self._cache_group(manager, request, num_tokens)


def make_coordinator(config: KVCacheConfig, *args, enable_caching: bool) -> Coordinator:
    if not enable_caching:
        return NoPrefixCacheCoordinator(config, *args)
    if len(config.kv_cache_groups) == 1:
        return UnitaryCoordinator(config, *args)
    return HybridCoordinator(config, *args)
