"""Full attention and sliding windows, one request table at a time. Source: spec/manager.md 3."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.kv_cache_spec import KVCacheSpec
from sim.request import Request
from tests.reference.pool import NULL, BlockPool


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


class SingleTypeManager:
    """What all kinds share (3.1)."""

    def __init__(
        self,
        spec: KVCacheSpec,
        group_id: int,
        pool: BlockPool,
        scheduler_block_size: int,
        max_model_len: int,
        max_num_batched_tokens: int,
    ):
        self.kv_cache_spec = spec
        self.block_size = spec.block_size
        self.group_id = group_id
        self.pool = pool
        self.scheduler_block_size = scheduler_block_size
        self.use_eagle = False
        self.req_to_blocks: dict[str, list[int]] = {}
        self.num_cached_block: dict[str, int] = {}
        self.cap = self.admission_cap(max_model_len, max_num_batched_tokens)

    def admission_cap(self, max_model_len: int, max_num_batched_tokens: int) -> int | None:
        return None

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return 0

    def new_step_starts(self) -> None:
        pass

    # -- prediction ---------------------------------------------------------------------
    def _evictable(self, block_ids: Sequence[int]) -> int:
        blocks = [self.pool.blocks[i] for i in block_ids if i != NULL]
        return sum(1 for block in blocks if block.ref_cnt == 0)

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        hits: Sequence[int],
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool,
    ) -> int:
        required = ceil_div(num_tokens, self.block_size)
        if apply_admission_cap and self.cap is not None:
            required = min(required, self.cap)
        have = len(self.req_to_blocks.get(request_id, []))
        if request_id in self.num_cached_block:
            assert not hits
            return max(required - have, 0)
        skipped = max(self.get_num_skipped_tokens(total_computed_tokens), 0) // self.block_size
        new = max(required - max(skipped, len(hits) + have), 0)
        return new + self._evictable(hits[max(0, skipped - have) :])

    # -- allocation ---------------------------------------------------------------------
    def add_local_computed_blocks(self, request_id: str, hits: list[int], num_tokens: int) -> None:
        assert not self.req_to_blocks.get(request_id)
        skipped = max(self.get_num_skipped_tokens(num_tokens), 0) // self.block_size
        kept = hits[skipped:]
        self.pool.touch(kept, self.group_id)
        self.req_to_blocks[request_id] = [NULL] * skipped + kept
        self.num_cached_block[request_id] = skipped + len(kept)
        self._report_append(request_id, 0)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[int]:
        table = self.req_to_blocks.setdefault(request_id, [])
        before = len(table)
        missing = ceil_div(num_tokens, self.block_size) - before
        if missing <= 0:
            return []
        table.extend(self.pool.get_new_blocks(missing, self.group_id))
        self._report_append(request_id, before)
        return table[before:]

    def _report_append(self, request_id: str, first: int) -> None:
        appended = self.req_to_blocks[request_id][first:]
        if appended:
            self.pool.observer.table_append(request_id, self.group_id, appended)

    # -- the cache index ----------------------------------------------------------------
    def reachable_block_mask(
        self,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        retention_interval: int | None,
        num_prompt_tokens: int | None,
    ) -> list[bool] | None:
        return None

    def cache_blocks(self, request: Request, prefix_ids: list[int], num_tokens: int, retention):
        done = self.num_cached_block.get(request.request_id, 0)
        full = num_tokens // self.block_size
        if done >= full:
            return
        mask = self.reachable_block_mask(
            done, full, self.scheduler_block_size, retention, request.num_prompt_tokens
        )
        self._register(request.request_id, prefix_ids, done, full, mask or [True] * (full - done))
        self.num_cached_block[request.request_id] = full

    def _register(self, request_id, prefix_ids, done, full, mask) -> None:
        assert len(prefix_ids) >= full and len(mask) == full - done
        block_ids, names = [], []
        for i in range(done, full):
            block_id = self.req_to_blocks[request_id][i]
            if block_id == NULL or not mask[i - done]:
                continue
            self.pool.register(block_id, self.group_id, prefix_ids[i])
            block_ids.append(block_id)
            names.append(prefix_ids[i])
        parent = prefix_ids[done - 1] if done else -1
        self.pool.observer.registered(
            self.group_id, request_id, done, full, parent, block_ids, names
        )

    # -- release ------------------------------------------------------------------------
    def free(self, request_id: str) -> None:
        table = self.req_to_blocks.pop(request_id, [])
        self.num_cached_block.pop(request_id, None)
        if table:
            self.pool.observer.table_drop(request_id, self.group_id)
        self.pool.free_blocks(table[::-1])

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        skipped = self.get_num_skipped_tokens(total_computed_tokens)
        if skipped > 0:
            self._clear(request_id, 0, skipped // self.block_size)

    def _clear(self, request_id: str, first: int, last: int) -> None:
        table = self.req_to_blocks.get(request_id, [])
        removed = []
        for i in reversed(range(first, min(last, len(table)))):
            if table[i] == NULL:
                break
            removed.append(table[i])
            table[i] = NULL
            self.pool.observer.table_null(request_id, self.group_id, i, i + 1)
        self.pool.free_blocks(removed)

    def get_num_common_prefix_blocks(self, request_id: str) -> int:
        return 0

    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        raise NotImplementedError

    def _columns_to_rows(self, columns: list[list[int]], num_groups: int):
        """Turn per-position lists of blocks into one row for each group."""
        return tuple([column[g] for column in columns] for g in range(num_groups))

    def _unaligned(self, num_blocks: int, alignment_tokens: int) -> bool:
        return num_blocks * self.block_size % alignment_tokens != 0


class FullAttentionManager(SingleTypeManager):
    """Every token is kept (3.2)."""

    def find_longest_cache_hit(
        self, prefix_ids, max_length, group_ids, drop_eagle_block, alignment_tokens
    ):
        columns = []
        for prefix_id in prefix_ids[: max_length // self.block_size]:
            blocks = self.pool.get_cached_block(prefix_id, group_ids)
            if blocks is None:
                break
            columns.append(blocks)
        if drop_eagle_block and columns:
            columns.pop()
        while self._unaligned(len(columns), alignment_tokens):
            columns.pop()
        return self._columns_to_rows(columns, len(group_ids))

    def get_num_common_prefix_blocks(self, request_id: str) -> int:
        num_requests = len(self.req_to_blocks)
        count = 0
        for block_id in self.req_to_blocks.get(request_id, []):
            if self.pool.blocks[block_id].ref_cnt != num_requests:
                break
            count += 1
        return count


class SlidingWindowManager(SingleTypeManager):
    """The last ``sliding_window`` tokens are read (3.3)."""

    def admission_cap(self, max_model_len: int, max_num_batched_tokens: int) -> int:
        reach = self.kv_cache_spec.sliding_window - 1 + max_num_batched_tokens
        return ceil_div(min(reach, max_model_len), self.block_size) + 1

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.kv_cache_spec.sliding_window + 1)

    def _need(self, eagle: bool) -> int:
        window = ceil_div(self.kv_cache_spec.sliding_window - 1, self.block_size)
        return window + (1 if eagle else 0)

    def find_longest_cache_hit(
        self, prefix_ids, max_length, group_ids, drop_eagle_block, alignment_tokens
    ):
        nothing = [NULL] * len(group_ids)
        columns = [nothing] * (max_length // self.block_size)
        run, matched = 0, False
        for i in reversed(range(len(columns))):
            blocks = self.pool.get_cached_block(prefix_ids[i], group_ids)
            if blocks is None:
                run = 0
                continue
            right_edge = i if drop_eagle_block else i + 1
            if run == 0 and self._unaligned(right_edge, alignment_tokens):
                continue
            columns[i] = blocks
            run += 1
            if run >= self._need(drop_eagle_block):
                columns = columns[: i + run]
                matched = True
                break
        if not matched:
            columns = columns[:run]
            while self._unaligned(len(columns), alignment_tokens):
                columns.pop()
        if drop_eagle_block and columns:
            columns.pop()
            while self._unaligned(len(columns), alignment_tokens):
                columns.pop()
        return self._columns_to_rows(columns, len(group_ids))

    def reachable_block_mask(
        self, start_block, end_block, alignment_tokens, retention_interval, num_prompt_tokens
    ):
        if alignment_tokens is None:
            return None
        assert alignment_tokens % self.block_size == 0
        need, shift = self._need(self.use_eagle), 1 if self.use_eagle else 0
        segment = alignment_tokens if retention_interval is None else retention_interval
        per = segment // self.block_size
        if segment and need >= per:
            return None
        kept = set()
        if segment:
            blocks = range(max(start_block, shift), end_block)
            kept = {i for i in blocks if (i - shift) % per >= per - need}
        if retention_interval is not None and num_prompt_tokens is not None:
            replay = (num_prompt_tokens - 1) // alignment_tokens * alignment_tokens
            edge = replay // self.block_size + shift
            kept |= set(range(edge - need, edge))
        return [i in kept for i in range(start_block, end_block)]
