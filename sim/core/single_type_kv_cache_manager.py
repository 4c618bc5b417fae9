"""The contract of an attention kind: one manager per KV cache group."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.block_pool import NULL_BLOCK, BlockPool
from sim.layout.kv_cache_spec import KVCacheSpec
from sim.units import cdiv

NEVER = 1 << 62


class SingleTypeKVCacheManager:
    """Block tables of one group, and the rules of its attention kind.

    ``req_to_blocks`` maps a request to its table: block ids in token order, 0 where no storage is
    needed. ``num_cached_block`` counts the leading entries that caching has dealt with; a request
    enters it with its first hit or full block. A kind overrides what differs.

    Source: spec/manager.md 3 (vLLM 0.25.1 ``SingleTypeKVCacheManager``).
    Deviation: reading an unknown request inserts nothing (Q11).
    """

    num_speculative_blocks = 0

    def __init__(
        self,
        kv_cache_spec: KVCacheSpec,
        block_pool: BlockPool,
        enable_caching: bool,
        kv_cache_group_id: int,
        scheduler_block_size: int,
        max_admission_blocks_per_request: int | None = None,
    ):
        self.kv_cache_spec = kv_cache_spec
        self.block_pool = block_pool
        self.enable_caching = enable_caching
        self.kv_cache_group_id = kv_cache_group_id
        self.scheduler_block_size = scheduler_block_size
        self.max_admission_blocks_per_request = max_admission_blocks_per_request
        self.block_size = kv_cache_spec.block_size
        self.use_eagle = False
        self.req_to_blocks: dict[str, list[int]] = {}
        self.num_cached_block: dict[str, int] = {}

    # -- what a kind decides ---------------------------------------------------------------
    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens at the front that computing token ``num_computed_tokens`` does not read."""
        return 0

    def reachable_block_mask(
        self,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
    ) -> list[bool] | None:
        """Which full blocks [start, end) a later lookup can reach; None means all."""
        return None

    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        """Return one row of blocks per group: the longest usable cached prefix.

        prefix_ids : identities at this manager's block size, at least max_length // block_size.
        Rows have equal lengths; the hit is that length times the block size, at most max_length
        and a multiple of alignment_tokens. The null block stands where nothing is needed.
        Mutates nothing.
        """
        raise NotImplementedError

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Leading blocks of a request that every request with blocks shares."""
        return 0

    def new_step_starts(self) -> None:
        """A scheduling step begins."""

    # -- prediction ------------------------------------------------------------------------
    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[int],
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        count_evictable: bool = True,
    ) -> int:
        """Predict how many blocks leave the free queue when a request grows to ``num_tokens``.

        Without count_evictable, hits that lie in the free queue are left out: a lower bound
        that costs nothing per hit.
        """
        required = cdiv(num_tokens, self.block_size)
        if apply_admission_cap and self.max_admission_blocks_per_request is not None:
            required = min(required, self.max_admission_blocks_per_request)
        have = len(self.req_to_blocks.get(request_id, ()))
        if request_id in self.num_cached_block:
            return max(required - have, 0)
        skipped = self._num_skipped_blocks(total_computed_tokens)
        new = max(required - max(skipped, len(new_computed_blocks) + have), 0)
        if not count_evictable:
            return new
        return new + self._num_evictable(new_computed_blocks[max(0, skipped - have) :])

    def _num_skipped_blocks(self, num_computed_tokens: int) -> int:
        return max(self.get_num_skipped_tokens(num_computed_tokens), 0) // self.block_size

    def _num_evictable(self, block_ids: Sequence[int]) -> int:
        """Blocks among these that lie in the free queue; the null block never does."""
        return list(map(self.block_pool.ref_cnt.__getitem__, block_ids)).count(0)

    # -- allocation ------------------------------------------------------------------------
    def add_local_computed_blocks(
        self, request_id: str, new_computed_blocks: Sequence[int], num_computed_tokens: int
    ) -> None:
        """Begin the table of a request with the blocks that it hit."""
        skipped = self._num_skipped_blocks(num_computed_tokens)
        kept = list(new_computed_blocks[skipped:])
        if kept:
            self.block_pool.touch(kept, self.kv_cache_group_id)
        table = [NULL_BLOCK] * skipped + kept
        self.req_to_blocks[request_id] = table
        self.num_cached_block[request_id] = len(table)
        if table:
            self._observed_append(request_id, table)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[int]:
        """Extend the table to hold ``num_tokens`` and return what was appended."""
        table = self.req_to_blocks.setdefault(request_id, [])
        count = cdiv(num_tokens, self.block_size) - len(table)
        if count <= 0:
            return []
        blocks = self.block_pool.get_new_blocks(count, self.kv_cache_group_id)
        table += blocks
        self._observed_append(request_id, blocks)
        return blocks

    def _observed_append(self, request_id: str, block_ids: Sequence[int]) -> None:
        self.block_pool.observer.table_append(request_id, self.kv_cache_group_id, block_ids)

    def cache_blocks(
        self,
        request_id: str,
        prefix_ids: Sequence[int],
        num_tokens: int,
        num_prompt_tokens: int,
        retention_interval: int | None = None,
    ) -> None:
        """Register the full blocks among the first ``num_tokens`` that were not dealt with."""
        done = self.num_cached_block.get(request_id, 0)
        full = num_tokens // self.block_size
        if done >= full:
            return
        mask = self.reachable_block_mask(
            done, full, self.scheduler_block_size, retention_interval, num_prompt_tokens
        )
        self.block_pool.cache_full_blocks(
            request_id,
            self.req_to_blocks[request_id],
            done,
            full,
            prefix_ids,
            self.kv_cache_group_id,
            mask,
        )
        self.num_cached_block[request_id] = full

    # -- giving back -----------------------------------------------------------------------
    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free the blocks that no later token reads; their entries become null."""
        skipped = self.get_num_skipped_tokens(total_computed_tokens)
        if skipped >= self.block_size:
            self._clear_before(request_id, skipped // self.block_size)

    def _clear_before(self, request_id: str, end: int) -> None:
        """Null the entries before ``end``, from the right, up to the first that is null already."""
        table = self.req_to_blocks.get(request_id, [])
        end = first = min(end, len(table))
        while first and table[first - 1]:
            first -= 1
        if first < end:
            removed = table[first:end]
            table[first:end] = [NULL_BLOCK] * (end - first)
            self.block_pool.observer.table_null(request_id, self.kv_cache_group_id, first, end)
            self.block_pool.free_blocks(removed[::-1])

    def free(self, request_id: str) -> None:
        """Give back the whole table, the last block first; an unknown request is legal."""
        table = self.req_to_blocks.pop(request_id, None)
        self.num_cached_block.pop(request_id, None)
        if table is not None:
            self.block_pool.observer.table_drop(request_id, self.kv_cache_group_id)
            self.block_pool.free_blocks([b for b in reversed(table) if b])

    def num_blocks_held(self, num_computed_tokens: int) -> int:
        """Blocks that a request needs at once while it computes one token after so many.

        Cost: O(1). Source: ours, for requests that can never fit; tested against real runs.
        """
        last_block = num_computed_tokens // self.block_size
        return last_block - self._num_skipped_blocks(num_computed_tokens) + 1

    # -- the quiet horizon -----------------------------------------------------------------
    def quiet_until(self, request_id: str, num_computed_tokens: int) -> int:
        """Smallest total of tokens at which a request that decodes may change anything here.

        num_computed_tokens is the count that the last allocation began with. A total (computed
        plus new tokens) below the answer allocates, registers and clears nothing, so
        ``allocate_slots`` may answer after one comparison. Registration is the coordinator's part.
        Source: ours.
        """
        end_of_table = len(self.req_to_blocks[request_id]) * self.block_size + 1
        return min(end_of_table, self._next_clearing(num_computed_tokens))

    def _next_clearing(self, num_computed_tokens: int) -> int:
        return NEVER
