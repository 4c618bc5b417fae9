"""Sliding window attention: the last tokens are kept, a hit needs the last blocks only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.core.block_pool import NULL_BLOCK
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.units import cdiv


class SlidingWindowManager(SingleTypeKVCacheManager):
    """A token reads itself and the ``sliding_window - 1`` tokens before it.

    Source: spec/manager.md 3.3. Deviation: the lookup tests a candidate window from its left end,
    because a miss there rules out every right edge up to it; the answers are the same.
    """

    def __init__(self, kv_cache_spec: Any, *args: Any, **kwargs: Any):
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.sliding_window: int = kv_cache_spec.sliding_window

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return how many leading tokens lie before the window of the next token."""
        return max(0, num_computed_tokens - self.sliding_window + 1)

    def _num_needed(self, one_more: bool) -> int:
        """Contiguous blocks that a hit needs."""
        return cdiv(self.sliding_window - 1, self.block_size) + one_more

    # -- lookup --------------------------------------------------------------------------
    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        """Return nulls and then the blocks of the last cached window before an aligned edge."""
        step = alignment_tokens // self.block_size
        # The smallest window counts as one block: with none needed (w = 1) a scan still stops at
        # its first cached block (spec/manager.md D.7).
        need = max(self._num_needed(drop_eagle_block), 1)
        start, end = self._last_window(
            prefix_ids, max_length // self.block_size, group_ids, need, step, drop_eagle_block
        )
        reached = end - start >= need
        rows = tuple(self._row(prefix_ids, start, end, g) for g in group_ids)
        return self._trimmed(rows, end, alignment_tokens, drop_eagle_block, reached)

    def _last_window(
        self,
        prefix_ids: Sequence[int],
        limit: int,
        group_ids: Sequence[int],
        need: int,
        step: int,
        drop_eagle_block: bool,
    ) -> tuple[int, int]:
        """Return [start, end) of the rightmost run: ``need`` blocks, or fewer from block 0 on.

        With a block to drop the edge that must be aligned is the one before the last block.
        """
        indexes = [self.block_pool.cached_blocks[g] for g in group_ids]
        end = _aligned_end(limit, step, drop_eagle_block)
        while end > 0:
            start = max(end - need, 0)
            miss = _first_miss(prefix_ids, start, end, indexes)
            if miss == end:
                return start, end
            end = _aligned_end(miss, step, drop_eagle_block)
        return 0, 0

    def _row(self, prefix_ids: Sequence[int], start: int, end: int, group_id: int) -> list[int]:
        index = self.block_pool.cached_blocks[group_id]
        return [NULL_BLOCK] * start + [index[i] for i in prefix_ids[start:end]]

    def _trimmed(
        self,
        rows: tuple[list[int], ...],
        length: int,
        alignment_tokens: int,
        drop_eagle_block: bool,
        reached: bool,
    ) -> tuple[list[int], ...]:
        """Drop the last block and what is not aligned, in the reference's order."""
        # The aligned edge lies before the block to drop: cut there, a whole segment is lost (Q4).
        if not reached and not (drop_eagle_block and "Q4" in self.fixes):
            length = self._aligned(length, alignment_tokens)
        if drop_eagle_block and length:
            length = self._aligned(length - 1, alignment_tokens)
        for row in rows:
            del row[length:]
        return rows

    def _aligned(self, length: int, alignment_tokens: int) -> int:
        while length * self.block_size % alignment_tokens:
            length -= 1
        return length

    # -- what is worth registering -----------------------------------------------------------
    def reachable_block_mask(
        self,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
    ) -> list[bool] | None:
        """Keep the last window before each segment's end, and before the prompt's."""
        if alignment_tokens is None:
            return None
        shift, need = int(self.use_eagle), self._num_needed(self.use_eagle)
        segment = alignment_tokens if retention_interval is None else retention_interval
        period = segment // self.block_size
        if period and need >= period:
            return None
        blocks = range(start_block, end_block)
        if period:
            mask = [i >= shift and (i - shift) % period >= period - need for i in blocks]
        else:
            mask = [False] * len(blocks)
        if retention_interval is not None and num_prompt_tokens is not None:
            last = (num_prompt_tokens - 1) // alignment_tokens * alignment_tokens
            edge = last // self.block_size + shift
            mask = [kept or edge - need <= i < edge for kept, i in zip(mask, blocks, strict=True)]
        return mask

    def _next_clearing(self, num_computed_tokens: int) -> int:
        cleared = self._num_skipped_blocks(num_computed_tokens)
        return (cleared + 1) * self.block_size + self.sliding_window


def _aligned_end(limit: int, step: int, drop_eagle_block: bool) -> int:
    """Largest right edge up to ``limit``; the aligned edge lies one lower if a block is dropped."""
    if not drop_eagle_block:
        return limit // step * step
    return (limit - 1) // step * step + 1 if limit > 0 else 0


def _first_miss(
    prefix_ids: Sequence[int], start: int, end: int, indexes: Sequence[dict[int, int]]
) -> int:
    for place in range(start, end):
        prefix_id = prefix_ids[place]
        for index in indexes:
            if prefix_id not in index:
                return place
    return end
