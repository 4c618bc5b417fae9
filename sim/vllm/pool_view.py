"""vLLM's block pool and tables, seen as ours are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from sim.vllm.hash_names import HashNames

NO_PREFIX = -1
_NULL_HOLDERS = 1 << 60
_COLUMNS = (
    "ref_cnt",
    "prefix_id",
    "group_id",
    "cached_blocks",
    "duplicates",
    "held_by_group",
    "cached_free_by_group",
)


class BlockPoolView:
    """The columns of ``sim.core.block_pool.BlockPool``, read from vLLM's objects when asked.

    Each column costs a pass over the blocks, or over the index; it is kept until ``changed``.
    """

    num_permanent_blocks = 0

    def __init__(self, manager: Any, names: HashNames):
        self._pool = manager.block_pool
        self._groups = manager.coordinator.single_type_managers
        self._names = names
        self.num_gpu_blocks: int = self._pool.num_gpu_blocks
        self.enable_caching: bool = self._pool.enable_caching
        self.partial_keys: dict[int, Any] = {}

    def changed(self) -> None:
        """Something was called that may have changed the pool: columns are read anew."""
        for name in _COLUMNS:
            self.__dict__.pop(name, None)

    @property
    def free_block_queue(self) -> BlockPoolView:
        """The free queue: this object can list it."""
        return self

    def get_all_free_blocks(self) -> list[int]:
        """Return the free ids from head to tail."""
        return [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()]

    def get_num_free_blocks(self) -> int:
        """Return how many blocks are free."""
        return int(self._pool.get_num_free_blocks())

    def get_usage(self) -> float:
        """Return the share of the usable blocks that have a holder."""
        return float(self._pool.get_usage())

    @cached_property
    def ref_cnt(self) -> list[int]:
        """Holders of each block; vLLM does not count those of the null block (Q10)."""
        column = [block.ref_cnt for block in self._pool.blocks]
        column[0] = _NULL_HOLDERS
        return column

    @cached_property
    def prefix_id(self) -> list[int]:
        """The identity that each block is cached under, -1 if none."""
        of_hash = self._names.of_hash
        return [
            NO_PREFIX if block.block_hash is None else of_hash[block.block_hash[:-4]]
            for block in self._pool.blocks
        ]

    @cached_property
    def group_id(self) -> list[int]:
        """The group of each block that is held or cached, else -1."""
        column = [NO_PREFIX] * self.num_gpu_blocks
        for block in self._pool.blocks:
            if block.block_hash is not None:
                column[block.block_id] = _group_of(block)
        for group_id, group in enumerate(self._groups):
            for block_id in _held(group):
                column[block_id] = group_id
        return column

    @cached_property
    def cached_blocks(self) -> list[dict[int, int]]:
        """By group, from an identity to the block that was registered first."""
        index: list[dict[int, int]] = [{} for _ in self._groups]
        for group_id, prefix_id, block_ids in self._entries():
            index[group_id][prefix_id] = block_ids[0]
        return index

    @cached_property
    def duplicates(self) -> list[dict[int, dict[int, None]]]:
        """By group, from an identity to the blocks that were registered later."""
        index: list[dict[int, dict[int, None]]] = [{} for _ in self._groups]
        for group_id, prefix_id, block_ids in self._entries():
            if len(block_ids) > 1:
                index[group_id][prefix_id] = dict.fromkeys(block_ids[1:])
        return index

    def _entries(self) -> Iterator[tuple[int, int, list[int]]]:
        for key, value in self._pool.cached_block_hash_to_block._cache.items():
            block_ids = list(value) if isinstance(value, dict) else [value.block_id]
            yield *self._names.of_key(key), block_ids

    @cached_property
    def held_by_group(self) -> list[int]:
        """Distinct blocks with a holder, by group."""
        return [len(_held(group)) for group in self._groups]

    @cached_property
    def cached_free_by_group(self) -> list[int]:
        """Free blocks that still cache something, by group."""
        counts = [0] * len(self._groups)
        for block in self._pool.blocks:
            if block.block_hash is not None and not block.ref_cnt:
                counts[_group_of(block)] += 1
        return counts

    @property
    def num_cached_free(self) -> int:
        """Free blocks that still cache something."""
        return sum(self.cached_free_by_group)


def _group_of(block: Any) -> int:
    return int.from_bytes(block.block_hash[-4:], "big")


def _held(group: Any) -> set[int]:
    tables = group.req_to_blocks.values()
    return {block.block_id for table in tables for block in table if not block.is_null}


class GroupView:
    """The tables of one of vLLM's managers, as lists of ids.

    Empty ones are left out: vLLM inserts some where it only reads (Q11).
    """

    permanent_blocks: tuple[int, ...] = ()

    def __init__(self, manager: Any):
        self._manager = manager
        self.block_size: int = manager.block_size

    @property
    def req_to_blocks(self) -> dict[str, list[int]]:
        """Tables by request id."""
        tables = self._manager.req_to_blocks.items()
        return {i: [block.block_id for block in table] for i, table in tables if table}

    @property
    def num_cached_block(self) -> dict[str, int]:
        """Leading entries that caching has dealt with, by request id."""
        return dict(self._manager.num_cached_block)

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens at the front that the next token does not read."""
        return int(self._manager.get_num_skipped_tokens(num_computed_tokens))
