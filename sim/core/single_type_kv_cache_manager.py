"""The contract of an attention kind: one manager per KV cache group."""

from __future__ import annotations

from collections.abc import Sequence, Set

from sim.core.block_pool import NULL_BLOCK, BlockPool
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    TQFullAttentionSpec,
)
from sim.units import cdiv

NEVER = 1 << 62

# Exactly these, not what is derived from them (spec/manager.md 3.1).
_ZEROED = {FullAttentionSpec, TQFullAttentionSpec, MLAAttentionSpec, HiddenStateCacheSpec}


class SingleTypeKVCacheManager:
    """Block tables of one group, and the rules of its attention kind.

    ``req_to_blocks`` maps a request to its table: block ids in token order, 0 where no storage is
    needed. ``num_cached_block`` counts the leading entries that caching has dealt with; a request
    enters it with its first hit or full block. A kind overrides what differs.

    Source: spec/manager.md 3 (vLLM 0.25.1 ``SingleTypeKVCacheManager``).
    Deviation: reading an unknown request inserts nothing (Q11).
    """

    is_prefix_closed = False
    """Whether a hit of a longer prefix holds for every shorter one: looked up first, and once."""
    honours_eagle_drop = True
    """Whether the lookup gives up a block where it is told to (Q1)."""
    reads_encoder = False
    """Whether the tokens to hold are the encoder's."""
    num_speculative_blocks = 0
    permanent_blocks: tuple[int, ...] = ()
    """Blocks that were taken from the pool at construction and never come back."""

    def __init__(
        self,
        kv_cache_spec: KVCacheSpec,
        block_pool: BlockPool,
        enable_caching: bool,
        kv_cache_group_id: int,
        scheduler_block_size: int,
        context_parallel_size: int = 1,
        max_admission_blocks_per_request: int | None = None,
        fixes: Set[str] = frozenset(),
        note_new_blocks: bool = True,
    ):
        self.check_spec(kv_cache_spec, fixes)
        self.kv_cache_spec = kv_cache_spec
        self.block_pool = block_pool
        self.enable_caching = enable_caching
        self.kv_cache_group_id = kv_cache_group_id
        self.scheduler_block_size = scheduler_block_size
        self.max_admission_blocks_per_request = max_admission_blocks_per_request
        self.fixes = fixes
        self.block_size = kv_cache_spec.block_size * context_parallel_size
        self.use_eagle = False
        self.req_to_blocks: dict[str, list[int]] = {}
        self.num_cached_block: dict[str, int] = {}
        self.new_block_ids: list[int] = []
        self._notes_new_blocks = note_new_blocks and type(kv_cache_spec) in _ZEROED

    @classmethod
    def check_spec(cls, kv_cache_spec: KVCacheSpec, fixes: Set[str]) -> None:
        """Raise ConfigError for a spec that cannot be served with these defects mended."""

    def check_lookups(self, alignment_tokens: int) -> None:
        """Raise ConfigError where hits with this alignment, and EAGLE, cannot be looked up."""

    def is_like(self, other: SingleTypeKVCacheManager) -> bool:
        """Return whether both serve their requests by the same rules, so with equal lengths."""
        mine, its = (m.kv_cache_spec for m in (self, other))
        return type(self) is type(other) and mine == its and self.use_eagle == other.use_eagle

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

    def allocate_external_computed_blocks(
        self, request_id: str, num_local_computed_tokens: int, num_external_computed_tokens: int
    ) -> None:
        """Append blocks for tokens that were computed elsewhere, as far as they are still read.

        Deviation: a table that is long enough already takes nothing (D.4).
        """
        total = num_local_computed_tokens + num_external_computed_tokens
        skipped = self.get_num_skipped_tokens(total)
        needed = num_external_computed_tokens
        if skipped > 0:
            needed = min(total - skipped, needed)
        if needed > 0:
            SingleTypeKVCacheManager.allocate_new_blocks(self, request_id, total, total)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[int]:
        """Extend the table to hold ``num_tokens`` and return what was appended.

        num_tokens_main_model : the same without lookahead slots.
        """
        table = self.req_to_blocks.setdefault(request_id, [])
        count = cdiv(num_tokens, self.block_size) - len(table)
        if count <= 0:
            return []
        blocks = self.block_pool.get_new_blocks(count, self.kv_cache_group_id)
        table += blocks
        if self._notes_new_blocks:
            self.new_block_ids += blocks
        self._observed_append(request_id, blocks)
        return blocks

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks that were taken since the last call, where memory must be zeroed."""
        taken, self.new_block_ids = self.new_block_ids, []
        return taken

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
    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free the blocks that no later token reads; their entries become null."""
        skipped = self.get_num_skipped_tokens(total_computed_tokens)
        if skipped >= self.block_size:
            self._clear_between(request_id, 0, skipped // self.block_size)

    def _clear_between(self, request_id: str, start: int, end: int) -> None:
        """Null the entries [start, end), from the right, up to the first that is null already."""
        table = self.req_to_blocks.get(request_id, [])
        end = first = min(end, len(table))
        while first > start and table[first - 1]:
            first -= 1
        if first < end:
            removed = table[first:end]
            table[first:end] = [NULL_BLOCK] * (end - first)
            self.block_pool.observer.table_null(request_id, self.kv_cache_group_id, first, end)
            self.block_pool.free_blocks(removed[::-1])

    def pop_blocks_for_free(self, request_id: str) -> list[int]:
        """Forget a request and return its table, null entries included; its blocks stay held.

        An unknown request is legal: it has none.
        """
        table = self.req_to_blocks.pop(request_id, None)
        self.num_cached_block.pop(request_id, None)
        if table is None:
            return []
        self.block_pool.observer.table_drop(request_id, self.kv_cache_group_id)
        return table

    def free(self, request_id: str) -> None:
        """Give back the whole table, the last block first; an unknown request is legal."""
        table = self.pop_blocks_for_free(request_id)
        if table:
            self.block_pool.free_blocks([b for b in reversed(table) if b])

    # -- what a request needs ----------------------------------------------------------------
    def num_blocks_held(
        self,
        num_computed_tokens: int,
        num_new_tokens: int = 1,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
    ) -> int:
        """Blocks that a request needs at once while it computes tokens after so many.

        The length of the prompt is used by kinds that keep it, where it is known. Cost: O(1).
        Source: ours, for requests that can never fit; tested against real runs.
        """
        length = cdiv(num_computed_tokens + num_new_tokens, self.block_size)
        return length - self._num_skipped_blocks(num_computed_tokens)

    @property
    def held_period(self) -> int:
        """Tokens after which ``num_blocks_held`` repeats, but for its growth."""
        return self.block_size

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
