"""Recurrent layers: one state per sequence, kept at the end of a scheduling step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.core.block_pool import NO_PREFIX, NULL_BLOCK
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.layout.kv_cache_spec import MambaSpec
from sim.units import cdiv


class MambaManager(SingleTypeKVCacheManager):
    """Only the state after the last computed token matters.

    Mode ``none``: one block (plus one per speculative token) for the whole sequence, no prefix
    caching. Mode ``align``: a block per state, states at the ends of scheduling steps, which the
    scheduler puts on block boundaries; entries between are null.
    Mode ``all``: a state at every block boundary, of which the last ones are kept.

    Source: spec/manager.md 3.5.
    """

    honours_eagle_drop = False

    def __init__(self, kv_cache_spec: MambaSpec, *args: Any, **kwargs: Any):
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.mamba_cache_mode = kv_cache_spec.mamba_cache_mode
        self.num_speculative_blocks = kv_cache_spec.num_speculative_blocks
        self.cached_blocks_this_step: set[int] = set()
        self.last_state_block_idx: dict[str, int] = {}
        self._allocated_block_reqs: set[str] = set()

    @property
    def _is_align(self) -> bool:
        return self.mamba_cache_mode == "align"

    def new_step_starts(self) -> None:
        """Forget which states the step before has made."""
        self.cached_blocks_this_step.clear()

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return all but the last computed token; -1 before the first."""
        return num_computed_tokens - 1

    # -- lookup --------------------------------------------------------------------------
    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        """Return nulls and the last aligned state that all groups have.

        ``drop_eagle_block`` is ignored, as the reference does (Q1).
        """
        step = alignment_tokens // self.block_size
        end = max_length // self.block_size // step * step
        indexes = [self.block_pool.cached_blocks[g] for g in group_ids]
        while end > 0:
            prefix_id = prefix_ids[end - 1]
            if all(prefix_id in index for index in indexes):
                return tuple([NULL_BLOCK] * (end - 1) + [index[prefix_id]] for index in indexes)
            end -= step
        return tuple([] for _ in group_ids)

    def reachable_block_mask(
        self,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
    ) -> list[bool] | None:
        """Keep states on segment boundaries, and the one that a replay of the prompt needs."""
        if retention_interval is None or alignment_tokens is None:
            return None
        period = retention_interval // self.block_size
        if retention_interval and period <= 1:
            return None
        replay = -1
        if num_prompt_tokens is not None:
            last = (num_prompt_tokens - 1) // alignment_tokens * alignment_tokens
            replay = last // self.block_size - 1
        return [
            (period > 0 and (i + 1) % period == 0) or i == replay
            for i in range(start_block, end_block)
        ]

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
        """Predict the blocks to take: more than there are for a hit that this very step makes."""
        if new_computed_blocks and self._is_made_in_this_step(new_computed_blocks[-1]):
            return self.block_pool.num_gpu_blocks + 1
        if not self._is_align:
            return super().get_num_blocks_to_allocate(
                request_id,
                num_tokens + self.block_size * self.num_speculative_blocks,
                new_computed_blocks,
                total_computed_tokens,
                num_tokens_main_model,
                apply_admission_cap,
                count_evictable,
            )
        new = self._required_blocks(num_tokens_main_model) - len(new_computed_blocks)
        new -= len(self.req_to_blocks.get(request_id, ()))
        if new > 0:
            fresh = request_id not in self._allocated_block_reqs
            new = 1 + self.num_speculative_blocks * fresh
        return new + (self._num_evictable(new_computed_blocks) if count_evictable else 0)

    def _is_made_in_this_step(self, block_id: int) -> bool:
        if not self.cached_blocks_this_step:
            return False
        prefix_id = self.block_pool.prefix_id[block_id]
        return prefix_id != NO_PREFIX and prefix_id in self.cached_blocks_this_step

    def _required_blocks(self, num_tokens: int) -> int:
        return cdiv(num_tokens, self.block_size) + self.num_speculative_blocks

    # -- allocation ------------------------------------------------------------------------
    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[int]:
        """Extend the table; in align mode the running state goes to the entry of its step's end."""
        if not self._is_align:
            num_tokens += self.block_size * self.num_speculative_blocks
            return super().allocate_new_blocks(request_id, num_tokens, num_tokens_main_model)
        table = self.req_to_blocks.setdefault(request_id, [])
        required = self._required_blocks(num_tokens_main_model)
        before = len(table)
        if required <= before:
            return []
        self._note_last_state(request_id, before)
        self._pad_with_nulls(request_id, table, required - self.num_speculative_blocks - 1)
        if request_id in self._allocated_block_reqs:
            self._move_speculative_blocks(request_id, table, before, required)
        blocks = self.block_pool.get_new_blocks(required - len(table), self.kv_cache_group_id)
        table += blocks
        self._observed_append(request_id, blocks)
        self._allocated_block_reqs.add(request_id)
        return table[before:]

    def _note_last_state(self, request_id: str, length: int) -> None:
        if request_id in self._allocated_block_reqs:
            self.last_state_block_idx[request_id] = length - 1 - self.num_speculative_blocks
        elif length:
            self.last_state_block_idx[request_id] = length - 1

    def _pad_with_nulls(self, request_id: str, table: list[int], length: int) -> None:
        padding = [NULL_BLOCK] * (length - len(table))
        if padding:
            table += padding
            self._observed_append(request_id, padding)

    def _move_speculative_blocks(
        self, request_id: str, table: list[int], before: int, required: int
    ) -> None:
        """Reuse the blocks of earlier speculative slots that lie before the running state."""
        running = required - self.num_speculative_blocks - 1
        for idx in range(before - self.num_speculative_blocks, min(before, running)):
            table.append(table[idx])
            table[idx] = NULL_BLOCK
            self.block_pool.observer.table_move(
                request_id, self.kv_cache_group_id, idx, len(table) - 1
            )

    def cache_blocks(
        self,
        request_id: str,
        prefix_ids: Sequence[int],
        num_tokens: int,
        num_prompt_tokens: int,
        retention_interval: int | None = None,
    ) -> None:
        """Register as any kind does and remember which states this step makes."""
        done = self.num_cached_block.get(request_id, 0)
        super().cache_blocks(
            request_id, prefix_ids, num_tokens, num_prompt_tokens, retention_interval
        )
        full = self.num_cached_block.get(request_id, 0)
        columns = self.block_pool.prefix_id
        for block_id in self.req_to_blocks.get(request_id, [])[done:full]:
            if block_id and columns[block_id] != NO_PREFIX:
                self.cached_blocks_this_step.add(columns[block_id])

    # -- giving back -----------------------------------------------------------------------
    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free older states, as if all speculative tokens were rejected."""
        computed = max(0, total_computed_tokens - self.num_speculative_blocks)
        super().remove_skipped_blocks(request_id, computed)
        if self._is_align:
            self._free_last_state(request_id, computed)

    def _free_last_state(self, request_id: str, num_computed_tokens: int) -> None:
        """Free the state before the running one; nulls between hide it from the base clearing."""
        idx = self.last_state_block_idx.get(request_id)
        if idx is None or idx >= cdiv(num_computed_tokens, self.block_size) - 1:
            return
        table = self.req_to_blocks[request_id]
        block_id = table[idx]
        if block_id:
            table[idx] = NULL_BLOCK
            self.block_pool.observer.table_null(request_id, self.kv_cache_group_id, idx, idx + 1)
            self.block_pool.free_blocks([block_id])

    def pop_blocks_for_free(self, request_id: str) -> list[int]:
        """Forget the request, also what align mode remembers."""
        self.last_state_block_idx.pop(request_id, None)
        self._allocated_block_reqs.discard(request_id)
        return super().pop_blocks_for_free(request_id)

    # -- what a request needs ----------------------------------------------------------------
    def num_blocks_held(
        self,
        num_computed_tokens: int,
        num_new_tokens: int = 1,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
    ) -> int:
        """Return the states: in align mode two while the state moves on to its next block."""
        speculative = self.num_speculative_blocks
        if self._is_align:
            return 1 + (num_computed_tokens >= self.block_size) + speculative
        length = cdiv(num_computed_tokens + num_new_tokens, self.block_size) + speculative
        return length - self._num_skipped_blocks(num_computed_tokens - speculative)

    def quiet_until(self, request_id: str, num_computed_tokens: int) -> int:
        """Return 0 in align mode with speculation: then every step may move a block."""
        if not self.num_speculative_blocks:
            return super().quiet_until(request_id, num_computed_tokens)
        if self._is_align:
            return 0
        length = len(self.req_to_blocks[request_id]) - self.num_speculative_blocks
        return min(length * self.block_size + 1, self._next_clearing(num_computed_tokens))

    def _next_clearing(self, num_computed_tokens: int) -> int:
        computed = num_computed_tokens - self.num_speculative_blocks
        next_block = max(computed - 1, 0) // self.block_size + 1
        return next_block * self.block_size + self.num_speculative_blocks + 2
