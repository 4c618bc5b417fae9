"""Chunked local attention: the tokens of the current chunk are kept, a hit needs only those."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any

from sim.core.attention.full import leading_blocks
from sim.core.block_pool import NULL_BLOCK
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.errors import ConfigError


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    """A token reads the tokens before it back to the start of its chunk.

    Everything before the chunk that ``max_length`` lies in counts as computed without a look at
    the cache (Q8): sound where another group bounds the hit. ``needs_evidence`` mends it for
    layouts without such a group: then a hit ends with blocks that are cached.

    Source: spec/manager.md 3.4.
    """

    needs_evidence = False

    def __init__(self, kv_cache_spec: Any, *args: Any, **kwargs: Any):
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.chunk_size: int = kv_cache_spec.attention_chunk_size

    def check_lookups(self, alignment_tokens: int) -> None:
        """Refuse EAGLE and unequal block sizes, at which the reference fails later."""
        if self.use_eagle:
            raise ConfigError.one("use_eagle", True, "false with chunked local attention")
        if alignment_tokens != self.block_size:
            allowed = f"{self.block_size}: chunked local attention needs one block size for all"
            raise ConfigError.one("scheduler_block_size", alignment_tokens, allowed)

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return where the chunk of the next token begins."""
        return num_computed_tokens // self.chunk_size * self.chunk_size

    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        """Return nulls up to the chunk and then the chunk's leading blocks that all groups have."""
        end = max_length // self.block_size
        start = max_length // self.chunk_size * self.chunk_size // self.block_size
        rows = self._rows(prefix_ids, start, end, group_ids)
        while self.needs_evidence and len(rows[0]) == start and start:
            end = start
            start = (end * self.block_size - 1) // self.chunk_size * self.chunk_size
            start //= self.block_size
            rows = self._rows(prefix_ids, start, end, group_ids)
        return rows

    def _rows(
        self, prefix_ids: Sequence[int], start: int, end: int, group_ids: Sequence[int]
    ) -> tuple[list[int], ...]:
        indexes = [self.block_pool.cached_blocks[g] for g in group_ids]
        found = [leading_blocks(index, prefix_ids, start, end) for index in indexes]
        length = min(map(len, found))
        return tuple([NULL_BLOCK] * start + row[:length] for row in found)

    @property
    def held_period(self) -> int:
        """Tokens after which the need for blocks repeats: whole chunks of whole blocks."""
        return lcm(self.chunk_size, self.block_size)

    def _next_clearing(self, num_computed_tokens: int) -> int:
        return self.get_num_skipped_tokens(num_computed_tokens) + self.chunk_size + 1
