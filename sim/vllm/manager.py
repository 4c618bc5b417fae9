"""vLLM's KVCacheManager behind the interface of ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sim.contents import Contents
from sim.core.kv_cache_coordinator import KVCacheCoordinator
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.manager_protocol import Rows
from sim.layout.kv_cache_config import KVCacheConfig
from sim.request import Request
from sim.vllm.pool_view import BlockPoolView, GroupView
from sim.vllm.raw_manager import build_manager
from sim.vllm.twins import Twins


class CoordinatorView:
    """vLLM's coordinator, as far as it is asked.

    What an empty pool would have to give is a question of the simulator's own front end, which
    refuses requests that can never fit; an idle coordinator of ours answers it.
    """

    def __init__(self, raw: Any, idle: KVCacheCoordinator):
        self._raw = raw
        self._idle = idle
        self.scheduler_block_size = idle.scheduler_block_size
        self.single_type_managers = [GroupView(m) for m in raw.single_type_managers]

    @property
    def num_uncached_common_prefix_tokens(self) -> int:
        """Tokens beyond the last hit that some group had cached."""
        return int(getattr(self._raw, "num_uncached_common_prefix_tokens", 0))

    @property
    def num_permanent_blocks(self) -> int:
        """Blocks that never come back."""
        return self._idle.num_permanent_blocks

    def get_num_blocks_to_allocate(self, request_id: str, *args: Any, **kwargs: Any) -> int:
        """Predict what a request that holds nothing yet will take."""
        return self._idle.get_num_blocks_to_allocate(request_id, *args, **kwargs)

    def num_blocks_held(self, num_computed_tokens: int, *args: Any, **kwargs: Any) -> int:
        """Blocks that a request needs at once to compute more tokens after so many."""
        return self._idle.num_blocks_held(num_computed_tokens, *args, **kwargs)

    def most_blocks_held(self, first: int, last: int, *args: Any, **kwargs: Any) -> int:
        """Most blocks at once while tokens first to last (not last) are computed."""
        return self._idle.most_blocks_held(first, last, *args, **kwargs)


class VllmKVCacheManager:
    """Hands every call to ``vllm.v1.core.kv_cache_manager.KVCacheManager``; blocks become ids.

    ``raw`` is vLLM's object. Arguments are those of ``sim.core.kv_cache_manager.KVCacheManager``
    that vLLM has too. Requests get their tokens from ``contents``.

    Deviation: no observer is told anything.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        scheduler_block_size: int,
        hash_block_size: int,
        max_num_batched_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        watermark: float = 0.0,
        retention_interval: int | None = None,
        decode_context_parallel_size: int = 1,
        prefill_context_parallel_size: int = 1,
        *,
        contents: Contents,
    ):
        settings: dict[str, Any] = {
            "max_num_batched_tokens": max_num_batched_tokens,
            "enable_caching": enable_caching,
            "use_eagle": use_eagle,
            "watermark": watermark,
            "retention_interval": retention_interval,
            "decode_context_parallel_size": decode_context_parallel_size,
            "prefill_context_parallel_size": prefill_context_parallel_size,
        }
        sizes = (max_model_len, scheduler_block_size, hash_block_size)
        self.raw = build_manager(kv_cache_config, *sizes, **settings)
        idle = KVCacheManager(kv_cache_config, *sizes, **settings)
        self.kv_cache_config = idle.kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.empty_kv_cache_blocks = idle.empty_kv_cache_blocks
        self.twins = Twins(contents, hash_block_size, enable_caching)
        self.coordinator = CoordinatorView(self.raw.coordinator, idle.coordinator)
        self.block_pool = BlockPoolView(self.raw, self.twins.names)

    @property
    def usage(self) -> float:
        """Share of the usable blocks that have a holder, 0 to 1."""
        return float(self.raw.usage)

    @property
    def prefix_cache_stats(self) -> Any:
        """Counts of vLLM; the fields are named as ours."""
        return self.raw.prefix_cache_stats

    # -- lookup and allocation ---------------------------------------------------------------
    def get_computed_blocks(self, request: Request) -> tuple[Rows, int]:
        """Return cached blocks by group and the hit in tokens."""
        blocks, num_hit = self.raw.get_computed_blocks(self.twins.of(request))
        return self._rows(blocks), num_hit

    def _rows(self, blocks: Any) -> Rows:
        rows = tuple(list(ids) for ids in blocks.get_block_ids())
        return rows if any(rows) else self.empty_kv_cache_blocks

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Rows | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
    ) -> Rows | None:
        """Return the new blocks by group, hits left out, or None if they are not there."""
        self.block_pool.changed()
        new_blocks = self.raw.allocate_slots(
            self.twins.of(request),
            num_new_tokens,
            num_new_computed_tokens,
            None if new_computed_blocks is None else self._blocks(new_computed_blocks),
            num_lookahead_tokens,
            num_external_computed_tokens,
            delay_cache_blocks,
            num_encoder_tokens,
            full_sequence_must_fit,
            reserved_blocks,
            has_scheduled_reqs,
        )
        return None if new_blocks is None else self._rows(new_blocks)

    def _blocks(self, rows: Rows) -> Any:
        blocks = self.raw.block_pool.blocks
        return self.raw.create_kv_cache_blocks(tuple([blocks[i] for i in row] for row in rows))

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register the full blocks of so many tokens."""
        self.block_pool.changed()
        self.raw.cache_blocks(self.twins.of(request), num_computed_tokens)

    # -- giving back -----------------------------------------------------------------------
    def free(self, request: Request) -> None:
        """Give back all blocks of a request."""
        self.block_pool.changed()
        if self.twins.known(request) is not None:
            self.raw.free(self.twins.of(request))
        if request.status.is_finished:
            self.twins.forget(request.request_id)

    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free what no later token of the request reads."""
        self.block_pool.changed()
        self.raw.remove_skipped_blocks(request_id, total_computed_tokens, num_prompt_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks cache."""
        self.block_pool.changed()
        self.raw.evict_blocks(set(block_ids))

    def reset_prefix_cache(self) -> bool:
        """Empty the cache index if no block is in use; return whether that was so."""
        self.block_pool.changed()
        return bool(self.raw.reset_prefix_cache())

    # -- queries ---------------------------------------------------------------------------
    def get_block_ids(self, request_id: str) -> Rows:
        """Return the tables of a request, by group."""
        return tuple(list(ids) for ids in self.raw.get_block_ids(request_id))

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Leading blocks that all requests with blocks share, by group."""
        return list(self.raw.get_num_common_prefix_blocks(running_request_id))

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks taken since the last call whose memory must be zeroed."""
        return list(self.raw.take_new_block_ids())

    def make_prefix_cache_stats(self) -> Any:
        """Return the counts since the last call, and count from zero."""
        return self.raw.make_prefix_cache_stats()

    def new_step_starts(self) -> None:
        """A scheduling step begins."""
        self.raw.new_step_starts()
