"""A recurrent state, modes "none" and "align". Source: spec/manager.md 3.5."""

from __future__ import annotations

from collections.abc import Sequence

from sim.layout.kv_cache_spec import MambaSpec
from tests.reference.attention import SingleTypeManager, ceil_div
from tests.reference.pool import NULL


class MambaManager(SingleTypeManager):
    """A recurrent state, modes "none" and "align" (3.5)."""

    def __init__(self, spec: MambaSpec, *args):
        super().__init__(spec, *args)
        self.align = spec.mamba_cache_mode == "align"
        self.num_speculative_blocks = spec.num_speculative_blocks
        self.cached_blocks_this_step: set[tuple[int, int]] = set()
        self.last_state_block_idx: dict[str, int] = {}
        self.allocated_block_reqs: set[str] = set()

    def new_step_starts(self) -> None:
        self.cached_blocks_this_step = set()

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens - 1

    def find_longest_cache_hit(
        self, prefix_ids, max_length, group_ids, drop_eagle_block, alignment_tokens
    ):
        for i in reversed(range(max_length // self.block_size)):
            blocks = self.pool.get_cached_block(prefix_ids[i], group_ids)
            if blocks is not None and not self._unaligned(i + 1, alignment_tokens):
                return self._columns_to_rows([[NULL] * len(group_ids)] * i + [blocks], len(blocks))
        return tuple([] for _ in group_ids)

    def reachable_block_mask(
        self, start_block, end_block, alignment_tokens, retention_interval, num_prompt_tokens
    ):
        if retention_interval is None or alignment_tokens is None:
            return None
        kept = set()
        if retention_interval > 0:
            per = retention_interval // self.block_size
            if per <= 1:
                return None
            kept = {i for i in range(start_block, end_block) if (i + 1) % per == 0}
        if num_prompt_tokens is not None:
            replay = (num_prompt_tokens - 1) // alignment_tokens * alignment_tokens
            kept.add(replay // self.block_size - 1)
        return [i in kept for i in range(start_block, end_block)]

    def cache_blocks(self, request, prefix_ids, num_tokens, retention):
        before = self.num_cached_block.get(request.request_id, 0)
        super().cache_blocks(request, prefix_ids, num_tokens, retention)
        after = self.num_cached_block.get(request.request_id, 0)
        for block_id in self.req_to_blocks[request.request_id][before:after]:
            key = self.pool.blocks[block_id].key
            if key is not None:
                self.cached_blocks_this_step.add(key)

    # -- prediction ---------------------------------------------------------------------
    def get_num_blocks_to_allocate(
        self, request_id, num_tokens, hits, total_computed_tokens, num_tokens_main_model, capped
    ):
        last_key = self.pool.blocks[hits[-1]].key if hits else None
        if last_key is not None and last_key in self.cached_blocks_this_step:
            return len(self.pool.blocks) + 1
        if self.align:
            return self._align_prediction(request_id, num_tokens_main_model, hits)
        return super().get_num_blocks_to_allocate(
            request_id,
            num_tokens + self.block_size * self.num_speculative_blocks,
            hits,
            total_computed_tokens,
            num_tokens_main_model,
            capped,
        )

    def _align_prediction(self, request_id: str, num_tokens: int, hits: Sequence[int]) -> int:
        required = ceil_div(num_tokens, self.block_size) + self.num_speculative_blocks
        new = required - len(hits) - len(self.req_to_blocks.get(request_id, []))
        if new > 0:
            first = request_id not in self.allocated_block_reqs
            new = 1 + self.num_speculative_blocks if first else 1
        return new + self._evictable(hits)

    # -- allocation ---------------------------------------------------------------------
    def allocate_new_blocks(self, request_id, num_tokens, num_tokens_main_model):
        if self.align:
            return self._allocate_align(request_id, num_tokens_main_model)
        extra = self.block_size * self.num_speculative_blocks
        return super().allocate_new_blocks(request_id, num_tokens + extra, num_tokens_main_model)

    def _allocate_align(self, request_id: str, num_tokens: int) -> list[int]:
        table = self.req_to_blocks.setdefault(request_id, [])
        spec_blocks, before = self.num_speculative_blocks, len(table)
        required = ceil_div(num_tokens, self.block_size) + spec_blocks
        if required <= before:
            return []
        again = request_id in self.allocated_block_reqs
        if again:
            self.last_state_block_idx[request_id] = before - 1 - spec_blocks
        elif before > 0:
            self.last_state_block_idx[request_id] = before - 1
        running_idx = required - spec_blocks - 1
        table.extend([NULL] * (running_idx - before))
        self._report_append(request_id, before)
        if again:
            self._move_speculative(request_id, before, running_idx)
        filled = len(table)
        new = self.pool.get_new_blocks(required - filled, self.group_id)
        assert len(new) <= (1 if again else 1 + spec_blocks)
        table.extend(new)
        self._report_append(request_id, filled)
        self.allocated_block_reqs.add(request_id)
        return table[before:]

    def _move_speculative(self, request_id: str, before: int, running_idx: int) -> None:
        table = self.req_to_blocks[request_id]
        for i in range(before - self.num_speculative_blocks, before):
            if i >= running_idx:
                break
            table.append(table[i])
            table[i] = NULL
            self.pool.observer.table_move(request_id, self.group_id, i, len(table) - 1)

    # -- release ------------------------------------------------------------------------
    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        sure = max(0, total_computed_tokens - self.num_speculative_blocks)
        super().remove_skipped_blocks(request_id, sure)
        last = self.last_state_block_idx.get(request_id)
        if not self.align or last is None or last >= ceil_div(sure, self.block_size) - 1:
            return
        self._clear(request_id, last, last + 1)

    def free(self, request_id: str) -> None:
        super().free(request_id)
        self.last_state_block_idx.pop(request_id, None)
        self.allocated_block_reqs.discard(request_id)
