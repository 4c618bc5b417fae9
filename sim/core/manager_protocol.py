"""What the rest of the project uses of a KV cache manager: ours, or vLLM's behind our interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sim.request import Request

Rows = tuple[list[int], ...]


class PrefixCacheCounts(Protocol):
    """Tokens asked for and found. Source: spec/manager.md 5.5."""

    requests: int
    queries: int
    hits: int
    preempted_requests: int
    preempted_queries: int
    preempted_hits: int


class FreeBlocks(Protocol):
    """The order in which free blocks are handed out."""

    def get_all_free_blocks(self) -> list[int]:
        """Return the ids from head to tail."""


class BlockPoolProtocol(Protocol):
    """The state of every block, as columns over block ids; block 0 is the null block."""

    num_gpu_blocks: int
    enable_caching: bool

    @property
    def free_block_queue(self) -> FreeBlocks:
        """The free blocks."""

    @property
    def ref_cnt(self) -> Sequence[int]:
        """Table entries that hold each block."""

    @property
    def prefix_id(self) -> Sequence[int]:
        """The identity that each block is cached under, -1 if none."""

    @property
    def group_id(self) -> Sequence[int]:
        """The group of each block that is held or cached."""

    @property
    def cached_blocks(self) -> Sequence[Mapping[int, int]]:
        """By group, from an identity to the earliest block."""

    @property
    def duplicates(self) -> Sequence[Mapping[int, Mapping[int, None]]]:
        """By group, from an identity to the later blocks, in order of registration."""

    @property
    def held_by_group(self) -> Sequence[int]:
        """Distinct blocks with a holder, by group."""

    @property
    def cached_free_by_group(self) -> Sequence[int]:
        """Free blocks that still cache something, by group."""

    @property
    def num_cached_free(self) -> int:
        """Their sum."""

    def get_num_free_blocks(self) -> int:
        """Return how many blocks have no holder."""

    def get_usage(self) -> float:
        """Return the share of the usable blocks that have a holder."""


class GroupTables(Protocol):
    """The tables of one group."""

    block_size: int
    permanent_blocks: Sequence[int]

    @property
    def req_to_blocks(self) -> Mapping[str, list[int]]:
        """Tables by request id; 0 is the null block."""

    @property
    def num_cached_block(self) -> Mapping[str, int]:
        """Leading entries that caching has dealt with, by request id."""

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Tokens at the front that the next token does not read."""


class CoordinatorProtocol(Protocol):
    """All groups together."""

    scheduler_block_size: int

    @property
    def single_type_managers(self) -> Sequence[GroupTables]:
        """The groups, in order."""

    @property
    def num_uncached_common_prefix_tokens(self) -> int:
        """Tokens beyond the last hit that some group had cached; 0 where nobody counts them."""

    @property
    def num_permanent_blocks(self) -> int:
        """Blocks that never come back."""

    def get_num_blocks_to_allocate(self, request_id: str, *args: Any, **kwargs: Any) -> int:
        """Predict what a request that holds nothing yet will take."""

    def num_blocks_held(self, num_computed_tokens: int, *args: Any, **kwargs: Any) -> int:
        """Blocks that a request needs at once to compute more tokens after so many."""

    def most_blocks_held(self, first: int, last: int, *args: Any, **kwargs: Any) -> int:
        """Most blocks at once while tokens first to last (not last) are computed."""


class ManagerProtocol(Protocol):
    """A KV cache manager: blocks are ids, by group; a shortage is None. Source: manager.md 5."""

    enable_caching: bool
    max_model_len: int
    empty_kv_cache_blocks: Rows

    @property
    def block_pool(self) -> BlockPoolProtocol:
        """The pool."""

    @property
    def coordinator(self) -> CoordinatorProtocol:
        """The groups."""

    @property
    def prefix_cache_stats(self) -> PrefixCacheCounts:
        """Counts since the last ``make_prefix_cache_stats``."""

    @property
    def usage(self) -> float:
        """Share of the usable blocks that have a holder."""

    def get_computed_blocks(self, request: Request) -> tuple[Rows, int]:
        """Return cached blocks and the hit in tokens."""

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
        """Return new blocks, or None if they are not there."""

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register the full blocks of so many tokens."""

    def free(self, request: Request) -> None:
        """Give back all blocks of a request."""

    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free what no later token of the request reads."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks cache."""

    def reset_prefix_cache(self) -> bool:
        """Empty the cache index if no block is in use."""

    def get_block_ids(self, request_id: str) -> Rows:
        """Return the tables of a request."""

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Leading blocks that all requests with blocks share, by group."""

    def take_new_block_ids(self) -> list[int]:
        """Return the blocks taken since the last call whose memory must be zeroed."""

    def make_prefix_cache_stats(self) -> PrefixCacheCounts:
        """Return the counts since the last call, and count from zero."""

    def new_step_starts(self) -> None:
        """A scheduling step begins."""
