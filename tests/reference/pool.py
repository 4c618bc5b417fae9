"""A pool of blocks as a list of records, a free queue as a list, an index as a dict.

Source: spec/manager.md 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.observer import NULL_OBSERVER, Observer

NULL = 0


@dataclass
class Block:
    """One block; ``key`` is (group id, prefix id) while its content is in the index.

    ``num_tokens`` is what the key stands for if the block was not full then, else None;
    ``secondary`` are keys of shorter prefixes.
    """

    block_id: int
    ref_cnt: int = 0
    group_id: int = -1
    key: tuple[int, int] | None = None
    num_tokens: int | None = None
    secondary: list[tuple[int, int]] = field(default_factory=list)


class FreeQueue:
    """The free blocks as a list: index 0 is the head, the next block to be handed out."""

    def __init__(self, block_ids: Sequence[int]):
        self.ids = list(block_ids)

    def get_all_free_blocks(self) -> list[int]:
        return list(self.ids)


class BlockPool:
    """Block 0 is the null block: never free, never in the index."""

    def __init__(
        self,
        num_blocks: int,
        num_groups: int,
        enable_caching: bool = True,
        observer: Observer = NULL_OBSERVER,
        hash_block_size: int | None = None,
    ):
        self.blocks = [Block(i) for i in range(num_blocks)]
        self.num_groups = num_groups
        self.enable_caching = enable_caching
        self.observer = observer
        self.hash_block_size = hash_block_size
        self.free_block_queue = FreeQueue(range(1, num_blocks))
        self.index: dict[tuple[int, int], list[int]] = {}

    # -- columns, as the real pool has them ---------------------------------------------
    @property
    def ref_cnt(self) -> list[int]:
        return [block.ref_cnt for block in self.blocks]

    @property
    def prefix_id(self) -> list[int]:
        return [block.key[1] if block.key else -1 for block in self.blocks]

    @property
    def group_id(self) -> list[int]:
        return [block.group_id for block in self.blocks]

    @property
    def num_cached_free(self) -> int:
        return sum(1 for i in self.free_block_queue.ids if self.blocks[i].key is not None)

    @property
    def held_by_group(self) -> list[int]:
        held = [b.group_id for b in self.blocks if b.block_id != NULL and b.ref_cnt > 0]
        return [held.count(group_id) for group_id in range(self.num_groups)]

    def get_num_free_blocks(self) -> int:
        return len(self.free_block_queue.ids)

    def get_usage(self) -> float:
        usable = len(self.blocks) - 1
        return 1 - self.get_num_free_blocks() / usable if usable else 0

    # -- lookup -------------------------------------------------------------------------
    def get_cached_block(self, prefix_id: int, group_ids: Sequence[int]) -> list[int] | None:
        found = []
        for group_id in group_ids:
            holders = self.index.get((group_id, prefix_id), [])
            if not holders:
                return None
            found.append(holders[0])
        return found

    # -- life of a block ----------------------------------------------------------------
    def get_new_blocks(self, num_blocks: int, group_id: int) -> list[int]:
        if num_blocks < 0 or num_blocks > self.get_num_free_blocks():
            raise ValueError(f"{num_blocks} of {self.get_num_free_blocks()} free blocks")
        taken = []
        for _ in range(num_blocks):
            block = self.blocks[self.free_block_queue.ids.pop(0)]
            self._forget(block)
            assert block.ref_cnt == 0
            block.ref_cnt = 1
            block.group_id = group_id
            taken.append(block.block_id)
        if taken:
            self.observer.allocated(taken, group_id)
        return taken

    def touch(self, block_ids: Sequence[int], group_id: int) -> None:
        for block_id in block_ids:
            if block_id == NULL:
                continue
            block = self.blocks[block_id]
            if block.ref_cnt == 0:
                self.free_block_queue.ids.remove(block_id)
            block.ref_cnt += 1
            self.observer.touched([block_id], group_id)

    def free_blocks(self, block_ids: Sequence[int]) -> None:
        hashless, cached = [], []
        for block_id in block_ids:
            if block_id == NULL:
                continue
            block = self.blocks[block_id]
            assert block.ref_cnt > 0, f"block {block_id} freed twice"
            block.ref_cnt -= 1
            self.observer.freed([block_id])
            if block.ref_cnt == 0:
                (hashless if block.key is None else cached).append(block_id)
        self.free_block_queue.ids = hashless + self.free_block_queue.ids + cached

    def register(self, block_id: int, group_id: int, prefix_id: int) -> None:
        block = self.blocks[block_id]
        assert block_id != NULL and self.enable_caching
        if block.num_tokens is not None:
            self._forget(block)
        assert block.key is None
        block.key = (group_id, prefix_id)
        self.index.setdefault(block.key, []).append(block_id)

    def cache_partial_block(
        self, request_id, block_id, num_tokens, prefix_ids, group_id, block_size
    ):
        if block_id == NULL:
            return None
        block = self.blocks[block_id]
        position = num_tokens // self.hash_block_size - 1
        key = (group_id, prefix_ids[position])
        if block_id in self.index.get(key, []):
            return key[1]
        if block.num_tokens is not None and block.num_tokens < num_tokens:
            self._forget(block)
        if block.key is None:
            block.key, block.num_tokens = key, num_tokens
        else:
            block.secondary.append(key)
        self.index.setdefault(key, []).append(block_id)
        parent = prefix_ids[position - 1] if position else -1
        self.observer.registered_partial(group_id, request_id, num_tokens, parent, block_id, key[1])
        return key[1]

    def _forget(self, block: Block) -> None:
        if block.key is None:
            return
        for key in (block.key, *block.secondary):
            self.observer.evicted([block.block_id], [key[0]], [key[1]])
            self.index[key].remove(block.block_id)
            if not self.index[key]:
                del self.index[key]
        block.key, block.num_tokens, block.secondary = None, None, []

    def evict_blocks(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            if not 0 <= block_id < len(self.blocks):
                raise ValueError(f"block {block_id} of {len(self.blocks)}")
        for block_id in block_ids:
            self._forget(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        if len(self.blocks) - self.get_num_free_blocks() != 1:
            return False
        self.index = {}
        for block in self.blocks:
            block.key, block.num_tokens, block.secondary = None, None, []
        self.observer.cleared()
        return True
