"""The pool that all groups share: the state of every block, the cache index, the free queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from sim.core.eviction import FreeKVCacheBlockQueue, FreeQueue, FreeQueuePolicy
from sim.errors import InvariantError
from sim.observer import NULL_OBSERVER, Observer

NULL_BLOCK = 0
NO_PREFIX = -1
# The null block has so many holders that it never looks free (spec/manager.md 1.1: never counted).
_NULL_HOLDERS = 1 << 60


@dataclass(slots=True)
class PartialKeys:
    """The keys of a block that was cached before it was full, beside its primary one.

    num_tokens : prefix length that the primary key stands for, 0 if that is the full block
    secondary : identities of shorter prefixes that also lead to the block, in order
    """

    num_tokens: int = 0
    secondary: list[int] = field(default_factory=list)


class BlockPool:
    """``num_gpu_blocks`` blocks, of which block 0 is the null block and never handed out.

    A block is its id; its state lies in three columns: ``ref_cnt`` (table entries that hold it),
    ``prefix_id`` (the identity that it is cached under, -1 if none) and ``group_id`` (the group
    that took it last). ``cached_blocks[g]`` maps an identity to the earliest registered block of
    group g that still lives, ``duplicates[g]`` to the later ones, in order of registration.
    ``partial_keys`` knows the few blocks that were cached before they were full.

    Invariants: ``sim.core.integrity`` recounts all of it.
    Source: spec/manager.md 1.3, 1.4 (vLLM 0.25.1 ``BlockPool``, ``BlockHashToBlockMap``).
    Deviation: negative counts and freeing a block without holders are errors (Q9, Q10).
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        num_groups: int = 1,
        enable_caching: bool = True,
        observer: Observer = NULL_OBSERVER,
        free_queue: FreeQueuePolicy = FreeKVCacheBlockQueue,
        hash_block_size: int | None = None,
    ):
        if num_gpu_blocks < 1:
            raise ValueError(f"a pool needs at least the null block, got {num_gpu_blocks}")
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.observer = observer
        self.hash_block_size = hash_block_size
        self.ref_cnt = [0] * num_gpu_blocks
        self.ref_cnt[NULL_BLOCK] = _NULL_HOLDERS
        self.prefix_id = [NO_PREFIX] * num_gpu_blocks
        self.group_id = [NO_PREFIX] * num_gpu_blocks
        self.cached_blocks: list[dict[int, int]] = [{} for _ in range(num_groups)]
        self.duplicates: list[dict[int, dict[int, None]]] = [{} for _ in range(num_groups)]
        self.partial_keys: dict[int, PartialKeys] = {}
        self.held_by_group = [0] * num_groups
        self.cached_free_by_group = [0] * num_groups
        self.free_block_queue: FreeQueue = free_queue(range(1, num_gpu_blocks), num_gpu_blocks)
        self.num_permanent_blocks = 0  # taken for ever, for attention sinks
        self.watched: set[int] = set()
        self.watch_is_stale = False

    # -- lookup --------------------------------------------------------------------------
    def get_cached_block(self, prefix_id: int, group_ids: Iterable[int]) -> list[int] | None:
        """Return the block of each group, or None if any group misses. Changes nothing."""
        found = [self.cached_blocks[g].get(prefix_id) for g in group_ids]
        return None if None in found else found  # type: ignore[return-value]

    def watch(self, prefix_ids: Iterable[int]) -> None:
        """Note from now on whether any of these identities enters or leaves the index."""
        self.watched = set(prefix_ids)
        self.watch_is_stale = False

    def _note(self, prefix_ids: Sequence[int]) -> None:
        watched = self.watched
        if watched and not self.watch_is_stale and not watched.isdisjoint(prefix_ids):
            self.watch_is_stale = True

    # -- taking and giving back ----------------------------------------------------------
    def get_new_blocks(self, n: int, group_id: int) -> list[int]:
        """Take ``n`` blocks from the head of the free queue; content that they cached is lost.

        Raises ValueError if n is negative or more than are free; then nothing has changed.
        """
        blocks = self.free_block_queue.popleft_n(n)
        ref_cnt, prefix_id, groups = self.ref_cnt, self.prefix_id, self.group_id
        cached = [b for b in blocks if prefix_id[b] >= 0]
        if cached:
            for group in self._drop_keys(cached):
                self.cached_free_by_group[group] -= 1
        for block_id in blocks:
            ref_cnt[block_id] = 1
            groups[block_id] = group_id
        self.held_by_group[group_id] += n
        self.observer.allocated(blocks, group_id)
        return blocks

    def _drop_keys(self, block_ids: Sequence[int]) -> list[int]:
        """Remove all keys of cached blocks, in this order; return the group of each block."""
        columns, index, duplicates = self.prefix_id, self.cached_blocks, self.duplicates
        groups_of_blocks = group_ids = [self.group_id[b] for b in block_ids]
        prefix_ids = [columns[b] for b in block_ids]
        if self.partial_keys:
            block_ids, prefix_ids = self._with_secondary_keys(block_ids)
            group_ids = [self.group_id[b] for b in block_ids]
        for block_id, group_id, prefix_id in zip(block_ids, group_ids, prefix_ids, strict=True):
            columns[block_id] = NO_PREFIX
            if prefix_id in duplicates[group_id]:
                self._drop_duplicate(block_id, group_id, prefix_id)
            else:
                del index[group_id][prefix_id]
        self._note(prefix_ids)
        self.observer.evicted(block_ids, group_ids, prefix_ids)
        return groups_of_blocks

    def _with_secondary_keys(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return a block and an identity per key, primary keys first; forget the secondary ones."""
        pairs = []
        for block_id in block_ids:
            keys = self.partial_keys.pop(block_id, PartialKeys())
            pairs += [(block_id, i) for i in (self.prefix_id[block_id], *keys.secondary)]
        return [b for b, _ in pairs], [i for _, i in pairs]

    def _drop_duplicate(self, block_id: int, group_id: int, prefix_id: int) -> None:
        index, duplicates = self.cached_blocks[group_id], self.duplicates[group_id]
        others = duplicates[prefix_id]
        if index[prefix_id] == block_id:
            block_id = index[prefix_id] = next(iter(others))
        del others[block_id]
        if not others:
            del duplicates[prefix_id]

    def touch(self, block_ids: Sequence[int], group_id: int) -> None:
        """Add a holder to cached blocks; those that were free leave the queue."""
        ref_cnt = self.ref_cnt
        pulled = [b for b in block_ids if not ref_cnt[b]]
        for block_id in block_ids:
            ref_cnt[block_id] += 1
        if pulled:
            self.free_block_queue.remove(pulled)
            self.cached_free_by_group[group_id] -= len(pulled)
            self.held_by_group[group_id] += len(pulled)
        self.observer.touched(block_ids, group_id)

    def free_blocks(self, ordered_blocks: Sequence[int]) -> None:
        """Take a holder away from each block; the first in the list is to be evicted first.

        Blocks without holders then enter the queue: those without content at the front, cached
        ones at the back, both in this order. Null blocks are skipped.
        """
        ref_cnt, prefix_id, groups = self.ref_cnt, self.prefix_id, self.group_id
        for block_id in ordered_blocks:
            if not ref_cnt[block_id]:
                raise InvariantError(f"block {block_id} is freed but has no holder")
            ref_cnt[block_id] -= 1
        freed = [b for b in ordered_blocks if not ref_cnt[b]]
        cached = [b for b in freed if prefix_id[b] >= 0]
        if len(cached) < len(freed):
            self.free_block_queue.prepend_n([b for b in freed if prefix_id[b] < 0])
        if cached:
            self.free_block_queue.append_n(cached)
        for block_id in freed:
            self.held_by_group[groups[block_id]] -= 1
        for block_id in cached:
            self.cached_free_by_group[groups[block_id]] += 1
        self.observer.freed(ordered_blocks)

    # -- the cache index -------------------------------------------------------------------
    def cache_full_blocks(
        self,
        request_id: str,
        table: Sequence[int],
        num_cached_blocks: int,
        num_full_blocks: int,
        prefix_ids: Sequence[int],
        group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """Register blocks [num_cached_blocks, num_full_blocks) of a table.

        prefix_ids : identities at the group's block size, from the first block of the request.
        block_mask : one flag per block of the range; False and null blocks are left out.
        """
        if num_cached_blocks >= num_full_blocks:
            return
        blocks = table[num_cached_blocks:num_full_blocks]
        ids = prefix_ids[num_cached_blocks:num_full_blocks]
        if len(ids) != len(blocks):
            raise InvariantError(
                f"request {request_id}: {len(blocks)} full blocks but {len(ids)} identities"
            )
        if block_mask is not None or NULL_BLOCK in blocks:
            keep = [bool(b) for b in blocks]
            if block_mask is not None:
                keep = [k and m for k, m in zip(keep, block_mask, strict=True)]
            if self.observer is not NULL_OBSERVER and not all(keep):
                self._tell_passed_over(request_id, group_id, blocks, ids, keep)
            blocks, ids = list(compress(blocks, keep)), list(compress(ids, keep))
        self._register(blocks, group_id, ids)
        parent = prefix_ids[num_cached_blocks - 1] if num_cached_blocks else NO_PREFIX
        self.observer.registered(
            group_id, request_id, num_cached_blocks, num_full_blocks, parent, blocks, ids
        )

    def _tell_passed_over(
        self,
        request_id: str,
        group_id: int,
        block_ids: Sequence[int],
        prefix_ids: Sequence[int],
        keep: Sequence[bool],
    ) -> None:
        left_out = [not k for k in keep]
        ids = list(compress(prefix_ids, left_out))
        masked = [b != NULL_BLOCK for b in compress(block_ids, left_out)]
        self.observer.passed_over(group_id, request_id, ids, masked)

    def _register(self, block_ids: Sequence[int], group_id: int, prefix_ids: Sequence[int]) -> None:
        columns, index = self.prefix_id, self.cached_blocks[group_id]
        for block_id, prefix_id in zip(block_ids, prefix_ids, strict=True):
            if columns[block_id] != NO_PREFIX:
                self._promote(block_id, prefix_id)
            columns[block_id] = prefix_id
            if index.setdefault(prefix_id, block_id) != block_id:
                self.duplicates[group_id].setdefault(prefix_id, {})[block_id] = None
        self._note(prefix_ids)

    def _promote(self, block_id: int, prefix_id: int) -> None:
        """Drop the keys of a block that is about to be cached as a full one."""
        keys = self.partial_keys.get(block_id)
        if keys is None or not keys.num_tokens:
            raise InvariantError(
                f"block {block_id} is to be cached as {prefix_id} but is {self.prefix_id[block_id]}"
            )
        self._drop_keys([block_id])

    def register(self, block_id: int, group_id: int, prefix_id: int) -> None:
        """Register one block that is in use."""
        self._register([block_id], group_id, [prefix_id])

    # -- blocks that are not full ------------------------------------------------------------
    def cache_partial_block(
        self,
        request_id: str,
        block_id: int,
        num_tokens: int,
        prefix_ids: Sequence[int],
        group_id: int,
        block_size: int,
    ) -> int | None:
        """Make a used block findable at a hash-block boundary inside it; return the identity.

        num_tokens : length of the prefix that ends inside the block, a multiple of the hash block
            size and not of ``block_size``.
        prefix_ids : identities at the hash block size, from the first block of the request.

        A longer prefix replaces the keys of a shorter one; a shorter one becomes a secondary key.
        Returns None for the null block. Nothing of the project calls it: an experiment may, and a
        lookup at the group's block size never finds such an entry.
        Source: spec/manager.md 1.4 (vLLM 0.25.1 ``BlockPool.cache_partial_block``).
        """
        if block_id == NULL_BLOCK:
            return None
        place = self._place_of_partial(block_id, num_tokens, prefix_ids, group_id, block_size)
        prefix_id = prefix_ids[place]
        keys = self.partial_keys.get(block_id, PartialKeys())
        if prefix_id == self.prefix_id[block_id] or prefix_id in keys.secondary:
            return prefix_id
        if 0 < keys.num_tokens < num_tokens:
            self._drop_keys([block_id])
        self._add_partial_key(block_id, num_tokens, prefix_id, group_id)
        parent = prefix_ids[place - 1] if place else NO_PREFIX
        self.observer.registered_partial(
            group_id, request_id, num_tokens, parent, block_id, prefix_id
        )
        return prefix_id

    def _place_of_partial(
        self,
        block_id: int,
        num_tokens: int,
        prefix_ids: Sequence[int],
        group_id: int,
        block_size: int,
    ) -> int:
        """Return the position of the last full hash block; raise if there is no such prefix."""
        size = self.hash_block_size
        if size is None or block_size <= size or block_size % size:
            raise InvariantError(f"blocks of {block_size} are not made of hash blocks of {size}")
        if not num_tokens % block_size or num_tokens % size:
            raise InvariantError(f"{num_tokens} tokens end at no hash block within a {block_size}")
        if not 0 < num_tokens // size <= len(prefix_ids):
            raise InvariantError(f"{num_tokens} tokens have no identity among {len(prefix_ids)}")
        if not self.ref_cnt[block_id] or self.group_id[block_id] != group_id:
            raise InvariantError(f"block {block_id} is not in use by group {group_id}")
        return num_tokens // size - 1

    def _add_partial_key(
        self, block_id: int, num_tokens: int, prefix_id: int, group_id: int
    ) -> None:
        keys = self.partial_keys.setdefault(block_id, PartialKeys())
        if self.prefix_id[block_id] == NO_PREFIX:
            self.prefix_id[block_id], keys.num_tokens = prefix_id, num_tokens
        else:
            keys.secondary.append(prefix_id)
        if self.cached_blocks[group_id].setdefault(prefix_id, block_id) != block_id:
            self.duplicates[group_id].setdefault(prefix_id, {})[block_id] = None
        self._note([prefix_id])

    # -- forgetting --------------------------------------------------------------------------
    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks cache; holders and queue positions stay as they are.

        Raises ValueError at the first id that the pool lacks; those before it are done.
        """
        for block_id in block_ids:
            if not 0 <= block_id < self.num_gpu_blocks:
                raise ValueError(f"block {block_id} is not in a pool of {self.num_gpu_blocks}")
            self.observer.evicted_by_id(block_id)
            if self.prefix_id[block_id] != NO_PREFIX:
                (group_id,) = self._drop_keys([block_id])
                self.cached_free_by_group[group_id] -= not self.ref_cnt[block_id]

    def reset_prefix_cache(self) -> bool:
        """Empty the index if no block but permanent ones has a holder; return whether that was so.

        Permanent blocks cache nothing. In the reference they would forbid every reset
        (spec/manager.md 3.8).
        """
        if self.get_num_free_blocks() != self.num_gpu_blocks - 1 - self.num_permanent_blocks:
            return False
        for index, duplicates in zip(self.cached_blocks, self.duplicates, strict=True):
            index.clear()
            duplicates.clear()
        self.partial_keys.clear()
        self.prefix_id[:] = [NO_PREFIX] * self.num_gpu_blocks
        self.cached_free_by_group[:] = [0] * len(self.cached_blocks)
        self.watch_is_stale = True
        self.observer.cleared()
        return True

    # -- accounting ------------------------------------------------------------------------
    def get_num_free_blocks(self) -> int:
        """Free blocks, cached ones included."""
        return self.free_block_queue.num_free_blocks

    @property
    def num_cached_free(self) -> int:
        """Free blocks that still cache something."""
        return sum(self.cached_free_by_group)

    def get_usage(self) -> float:
        """Share of the usable blocks that have a holder, 0 to 1."""
        usable = self.num_gpu_blocks - 1
        return 1 - self.get_num_free_blocks() / usable if usable else 0.0
