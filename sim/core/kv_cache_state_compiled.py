"""The state of the compiled manager: what there is of it, as arrays, and how it is made.

Rules of a layout are numbers in CONFIG and GROUP; a request is a record; the tables of a request
are a row of ``Tables.blocks``, which it has from its first block to its end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sim.core.attention.chunked_local import ChunkedLocalAttentionManager
from sim.core.attention.full import FullAttentionManager
from sim.core.attention.mamba import MambaManager
from sim.core.attention.sliding_window import SlidingWindowManager
from sim.core.block_pool_compiled import Pool, new_pool, with_room_for
from sim.core.hybrid_kv_cache_coordinator import HybridKVCacheCoordinator
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.unitary_kv_cache_coordinator import KVCacheCoordinatorNoPrefixCache

FULL, SLIDING_WINDOW, CHUNKED_LOCAL, MAMBA, MAMBA_ALIGN = range(5)
KINDS = {
    FullAttentionManager: FULL,
    SlidingWindowManager: SLIDING_WINDOW,
    ChunkedLocalAttentionManager: CHUNKED_LOCAL,
    MambaManager: MAMBA,
}
"""The kinds that have a compiled half, by their manager."""
WATCHES_FIRST_TOKEN, WATCHES_END = 1, 2
"""Flags of a request: what of it somebody waits for."""
NO_PREFIX_CACHE, UNITARY, HYBRID = range(3)

CONFIG = np.dtype(
    [
        ("num_groups", "i8"),
        ("coordinator", "i8"),
        ("enable_caching", "i8"),
        ("scheduler_block_size", "i8"),
        ("alignment_tokens", "i8"),
        ("hash_block_size", "i8"),
        ("retention_interval", "i8"),  # -1: none
        ("max_model_len", "i8"),
        ("watermark_blocks", "i8"),
        ("num_gpu_blocks", "i8"),
    ],
    align=True,
)
"""What does not change while a run lasts; tokens and blocks."""

GROUP = np.dtype(
    [
        ("kind", "i8"),
        ("block_size", "i8"),
        ("factor", "i8"),  # hash blocks in a block
        ("span", "i8"),  # sliding window or chunk, tokens
        ("max_admission_blocks", "i8"),  # -1: no bound
        ("num_speculative_blocks", "i8"),
        ("num_needed", "i8"),  # blocks before the next token that a window reads
        ("mask_period", "i8"),  # blocks between two edges that a hit may end at; 0: none
        ("keeps_all", "i8"),  # every full block is worth registering
        ("is_like_the_last", "i8"),  # an attention group with the rules of the one before it
    ],
    align=True,
)
"""The rules of one group."""

REQUEST = np.dtype(
    [
        ("serial", "i8"),  # tells requests apart that had one record after the other
        ("num_prompt_tokens", "i8"),
        ("max_tokens", "i8"),
        ("ends_at", "i8"),
        ("num_tokens", "i8"),
        ("num_computed_tokens", "i8"),
        ("num_output_placeholders", "i8"),
        ("async_tokens_to_discard", "i8"),
        ("quiet_until", "i8"),
        ("arrival_ns", "i8"),
        ("first_scheduled_ns", "i8"),
        ("first_token_ns", "i8"),
        ("finish_ns", "i8"),
        ("num_cached_tokens", "i8"),
        ("prefix_ids_start", "i8"),
        ("num_prefix_ids", "i8"),
        ("priority", "i8"),
        ("tie", "i8"),  # order of the ids of requests that are equal otherwise
        ("num_preemptions", "i4"),
        ("row", "i4"),  # of its tables; -1: it has none
        ("next", "i4"),  # in the waiting queue
        ("previous", "i4"),
        ("status", "i1"),
        ("is_prefill_chunk", "i1"),
        ("is_watched", "i1"),
    ],
    align=True,
)
"""The mutable record of a request; fields as in ``sim.request.Request``."""

TABLE = np.dtype(
    [
        ("length", "i4"),
        ("num_cached_block", "i4"),  # -1: caching has not dealt with it
        ("num_nulls", "i4"),  # entries at the front that are null for good
        ("num_touched", "i4"),  # entries up to the last one that was hit
        ("last_state_block_idx", "i4"),  # -1: none
        ("is_allocated", "i4"),  # a recurrent group in align mode has given it blocks
    ],
    align=True,
)
"""What a group notes about a request."""

LOOKUP = np.dtype(
    [
        ("serial", "i8"),
        ("num_tokens", "i8"),
        ("length", "i8"),
        ("has_rows", "i8"),
        ("uncached", "i8"),
        ("is_watched", "i8"),
        ("num_uncached_common_prefix_tokens", "i8"),
        ("step", "i8"),  # number of the scheduling step, from 1
        ("num_free_rows", "i8"),
        ("requests", "i8"),  # the statistics of lookups
        ("queries", "i8"),
        ("hits", "i8"),
        ("preempted_requests", "i8"),
        ("preempted_queries", "i8"),
        ("preempted_hits", "i8"),
    ],
    align=True,
)
"""The last lookup, the manager's other scalars, and the fields of ``PrefixCacheStats``."""


class Tables(NamedTuple):
    """Block tables; shapes: R rows, G groups, L entries.

    blocks : uint32 (R, L, G): what all groups do to a request is done in one place
    notes : TABLE (R, G); free_rows : int32 (R,), a stack
    """

    blocks: np.ndarray
    notes: np.ndarray
    free_rows: np.ndarray


class Manager(NamedTuple):
    """All that the manager works on; shapes: G groups, E entries of equal specs, P identities.

    members : int32 (E, G), the groups of each entry, -1 behind the last
    made_at : int32 (G, P), the step in which a recurrent group registered an identity last; (G, 0)
        without such groups
    hits : uint32 (G, L), the rows of the last lookup: from hit_first[g] to num_hits[g] blocks,
        nulls before
    """

    config: np.ndarray
    groups: np.ndarray
    members: np.ndarray
    pool: Pool
    tables: Tables
    requests: np.ndarray
    prefix_ids: np.ndarray
    made_at: np.ndarray
    hits: np.ndarray
    hit_first: np.ndarray
    num_hits: np.ndarray
    lookup: np.ndarray


def new_manager(
    manager: KVCacheManager,
    num_prefix_ids: int = 1024,
    num_requests: int = 64,
    num_rows: int = 16,
    num_entries: int = 64,
) -> Manager:
    """Return the compiled counterpart of a manager that has served nothing yet.

    The last four are sizes to begin with.
    """
    coordinator = manager.coordinator
    groups, members = _groups(manager), _members(coordinator)
    num_groups = len(groups)
    has_states = bool((groups.kind >= MAMBA).any())
    lookup = np.zeros(1, LOOKUP).view(np.recarray)
    lookup.serial = -1
    state = Manager(
        _config(manager),
        groups,
        members,
        new_pool(manager.block_pool.num_gpu_blocks, num_groups, num_prefix_ids),
        _tables(0, num_groups, num_entries),
        np.zeros(num_requests, REQUEST).view(np.recarray),
        np.zeros(num_prefix_ids, np.uint32),
        np.zeros((num_groups, num_prefix_ids if has_states else 0), np.int32),
        np.zeros((num_groups, num_entries), np.uint32),
        np.zeros(num_groups, np.int64),
        np.zeros(num_groups, np.int64),
        lookup,
    )
    return with_rows(state, num_rows)


def _config(manager: KVCacheManager) -> np.ndarray:
    coordinator = manager.coordinator
    config = np.zeros(1, CONFIG).view(np.recarray)
    kind = HYBRID if isinstance(coordinator, HybridKVCacheCoordinator) else UNITARY
    if isinstance(coordinator, KVCacheCoordinatorNoPrefixCache):
        kind = NO_PREFIX_CACHE
    size = coordinator.scheduler_block_size
    config.num_groups = len(coordinator.single_type_managers)
    config.coordinator = kind
    config.enable_caching = manager.enable_caching
    config.scheduler_block_size = size
    only = coordinator.single_type_managers[0].block_size if config.num_groups[0] else size
    config.alignment_tokens = only if kind == UNITARY else size
    config.hash_block_size = coordinator.hash_block_size
    retention = coordinator.retention_interval
    config.retention_interval = -1 if retention is None else retention
    config.max_model_len = manager.max_model_len
    config.watermark_blocks = manager.watermark_blocks
    config.num_gpu_blocks = manager.block_pool.num_gpu_blocks
    return config


def _groups(manager: KVCacheManager) -> np.ndarray:
    singles = manager.coordinator.single_type_managers
    groups = np.zeros(len(singles), GROUP).view(np.recarray)
    for group, single in zip(groups, singles, strict=True):
        _fill(group, single, manager.coordinator)
    is_attention = groups.kind[1:] < MAMBA
    groups.is_like_the_last[1:] = (groups[1:] == groups[:-1]) & is_attention
    return groups


def _fill(group: Any, single: Any, coordinator: Any) -> None:
    group.kind = KINDS[type(single)]
    if group.kind == MAMBA and single.mamba_cache_mode == "align":
        group.kind = MAMBA_ALIGN
    size = group.block_size = single.block_size
    group.factor = max(1, size // coordinator.hash_block_size)
    group.span = getattr(single, "sliding_window", 0) or getattr(single, "chunk_size", 0)
    cap = single.max_admission_blocks_per_request
    group.max_admission_blocks = -1 if cap is None else cap
    group.num_speculative_blocks = single.num_speculative_blocks
    retention = coordinator.retention_interval
    segment = coordinator.scheduler_block_size if retention is None else retention
    period = group.mask_period = segment // size
    if group.kind == SLIDING_WINDOW:
        group.num_needed = single._num_needed(False)
        group.keeps_all = period > 0 and group.num_needed >= period
    elif group.kind >= MAMBA:
        group.keeps_all = retention is None or (retention > 0 and period <= 1)
    else:
        group.keeps_all = True


def _members(coordinator: Any) -> np.ndarray:
    entries = [[0]]
    if isinstance(coordinator, HybridKVCacheCoordinator):
        entries = [entry.group_ids for entry in coordinator.attention_groups]
    num_groups = len(coordinator.single_type_managers)
    members = np.full((len(entries), num_groups + 1), -1, np.int32)
    for place, group_ids in enumerate(entries):
        members[place, : len(group_ids)] = group_ids
    return members


# -- room --------------------------------------------------------------------------------------
def _tables(num_rows: int, num_groups: int, num_entries: int) -> Tables:
    notes = np.zeros((num_rows, num_groups), TABLE).view(np.recarray)
    notes.num_cached_block = notes.last_state_block_idx = -1
    blocks = np.zeros((num_rows, num_entries, num_groups), np.uint32)
    return Tables(blocks, notes, np.zeros(num_rows, np.int32))


def with_rows(state: Manager, num_rows: int) -> Manager:
    """Return the state with room for the tables of so many requests, its content kept."""
    old = state.tables
    before, num_entries, num_groups = old.blocks.shape
    if num_rows <= before:
        return state
    new = _tables(num_rows, num_groups, num_entries)
    num_free = int(state.lookup[0].num_free_rows)
    used = np.setdiff1d(np.arange(before), old.free_rows[:num_free])
    new.blocks[used], new.notes[used] = old.blocks[used], old.notes[used]
    num_new = num_rows - before
    # The lowest rows lie on top: memory that was never touched is never there.
    new.free_rows[:num_new] = np.arange(num_rows - 1, before - 1, -1)
    new.free_rows[num_new : num_new + num_free] = old.free_rows[:num_free]
    state.lookup[0].num_free_rows = num_free + num_new
    return state._replace(tables=new)


def with_entries(state: Manager, num_entries: int) -> Manager:
    """Return the state with tables of at least so many entries, its content kept."""
    old = state.tables
    num_rows, before, num_groups = old.blocks.shape
    if num_entries <= before:
        return state
    num_entries = max(num_entries, 2 * before)
    blocks = np.zeros((num_rows, num_entries, num_groups), np.uint32)
    used = np.setdiff1d(np.arange(num_rows), old.free_rows[: int(state.lookup[0].num_free_rows)])
    blocks[used, :before] = old.blocks[used]
    hits = np.zeros((num_groups, num_entries), np.uint32)
    hits[:, :before] = state.hits
    return state._replace(tables=old._replace(blocks=blocks), hits=hits)


def with_requests(state: Manager, num_requests: int) -> Manager:
    """Return the state with at least so many records of requests, its content kept."""
    before = len(state.requests)
    if num_requests <= before:
        return state
    requests = np.zeros(max(num_requests, 2 * before), REQUEST).view(np.recarray)
    requests[:before] = state.requests
    return state._replace(requests=requests)


def with_identities(state: Manager, num_prefix_ids: int) -> Manager:
    """Return the state with an index of at least so many identities, its content kept."""
    pool = with_room_for(state.pool, num_prefix_ids)
    groups, before = state.made_at.shape
    if pool is state.pool:
        return state
    if not before:
        return state._replace(pool=pool)
    made_at = np.zeros((groups, len(pool.index)), np.int32)
    made_at[:, :before] = state.made_at
    return state._replace(pool=pool, made_at=made_at)
