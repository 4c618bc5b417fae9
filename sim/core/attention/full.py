"""Full attention: every token is kept, a hit needs every block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

_FIRST_PROBE = 16


class FullAttentionManager(SingleTypeKVCacheManager):
    """Nothing is freed before the end of a request.

    Source: spec/manager.md 3.2. Deviation: none.
    """

    is_prefix_closed = True

    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        """Return the blocks of the longest prefix that every group has."""
        indexes = [self.block_pool.cached_blocks[g] for g in group_ids]
        end = max_length // self.block_size
        rows = tuple([leading_blocks(index, prefix_ids, 0, end) for index in indexes])
        length = min(map(len, rows))
        if drop_eagle_block and length:
            length -= 1
        while length * self.block_size % alignment_tokens:
            length -= 1
        for row in rows:
            del row[length:]
        return rows

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Count leading blocks that as many requests hold as have blocks at all."""
        ref_cnt, holders = self.block_pool.ref_cnt, len(self.req_to_blocks)
        count = 0
        for block_id in self.req_to_blocks.get(running_request_id, ()):
            if ref_cnt[block_id] != holders:
                break
            count += 1
        return count


def leading_blocks(
    index: dict[int, int], prefix_ids: Sequence[int], start: int, end: int
) -> list[int]:
    """Return the blocks of identities [start, end) up to the first that is not cached.

    Looks up in runs that double, so that an early miss costs little and a long hit too.
    """
    get = index.get
    row: list[int] = []
    limit = min(end, len(prefix_ids)) - start
    probe = _FIRST_PROBE
    while len(row) < limit:
        first = start + len(row)
        found: list[Any] = list(map(get, prefix_ids[first : min(first + probe, start + limit)]))
        if None in found:
            row += found[: found.index(None)]
            break
        row += found
        probe *= 2
    return row
