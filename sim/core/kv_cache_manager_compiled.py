"""The compiled half of the KV cache manager: the only door for the scheduler.

``m`` is the state, ``r`` the number of a request's record. The blocks of the last lookup lie in the
state (``hits``), so a request is told whether they are its own.
"""

from __future__ import annotations

from sim.core import kv_cache_coordinator_compiled as coordinator
from sim.core.block_pool_compiled import unwatch, watch
from sim.jit import compiled
from sim.request import RequestStatus

WAITING, RUNNING, PREEMPTED = map(
    int, (RequestStatus.WAITING, RequestStatus.RUNNING, RequestStatus.PREEMPTED)
)

_allocate_new_blocks = coordinator.allocate_new_blocks
_allocate_new_computed_blocks = coordinator.allocate_new_computed_blocks
_cache_blocks = coordinator.cache_blocks
_find_longest_cache_hit = coordinator.find_longest_cache_hit
_free = coordinator.free
_get_num_blocks_to_allocate = coordinator.get_num_blocks_to_allocate
_quiet_until = coordinator.quiet_until
_remove_skipped_blocks = coordinator.remove_skipped_blocks


# -- lookup --------------------------------------------------------------------------------------
@compiled
def get_computed_blocks(m, r):
    """Find what is cached of a request; return the hit in tokens, at most ``num_tokens - 1``."""
    lookup, request = m.lookup[0], m.requests[r]
    if not m.config[0].enable_caching:
        return 0
    if not _is_remembered(m, r):
        _look_up(m, r)
    lookup.num_uncached_common_prefix_tokens = lookup.uncached
    if request.num_preemptions > 0:
        lookup.preempted_requests += 1
        lookup.preempted_queries += request.num_tokens
        lookup.preempted_hits += lookup.length
    else:
        lookup.requests += 1
        lookup.queries += request.num_tokens
        lookup.hits += lookup.length
    return lookup.length


@compiled
def _is_remembered(m, r):
    """Whether the last lookup was this one; from the second time on the pool says if it holds."""
    lookup, request, counters = m.lookup[0], m.requests[r], m.pool.counters[0]
    if lookup.serial != request.serial or lookup.num_tokens != request.num_tokens:
        return False
    if lookup.is_watched and not counters.watch_is_stale:
        return True
    if lookup.is_watched:
        counters.watch_is_stale = 0
    else:
        count = request.num_tokens // m.config[0].hash_block_size
        watch(m.pool, m.prefix_ids[request.prefix_ids_start :], count)
    _look_up(m, r)
    lookup.is_watched = 1
    return True


@compiled
def _look_up(m, r):
    lookup, request = m.lookup[0], m.requests[r]
    length = _find_longest_cache_hit(m, request, request.num_tokens - 1)
    if lookup.is_watched and lookup.serial != request.serial:
        unwatch(m.pool)
    lookup.serial = request.serial
    lookup.num_tokens = request.num_tokens
    lookup.length = length
    lookup.uncached = lookup.num_uncached_common_prefix_tokens
    lookup.is_watched = 0
    lookup.has_rows = 0
    for group_id in range(m.config[0].num_groups):
        if m.num_hits[group_id] > 0:
            lookup.has_rows = 1


# -- allocation ----------------------------------------------------------------------------------
@compiled
def allocate_slots(m, r, num_new_tokens, num_hit, is_first, must_fit, has_scheduled_reqs):
    """Give a request blocks for ``num_new_tokens`` more tokens; False if they are not there.

    num_hit : tokens of the last lookup, if is_first: it was made for this request just now
    must_fit : there must be room for all that is known of the request
    """
    config, request = m.config[0], m.requests[r]
    computed = request.num_computed_tokens
    is_quiet = computed + num_new_tokens < request.quiet_until and not must_fit
    if is_quiet and (not config.watermark_blocks or request.status == RUNNING):
        return True
    has_hits = is_first and config.enable_caching and m.lookup[0].has_rows
    asked = computed + num_hit
    total = min(asked, config.max_model_len)
    free = m.pool.counters[0].num_free_blocks
    if has_scheduled_reqs and (request.status == WAITING or request.status == PREEMPTED):
        free -= config.watermark_blocks
    row = request.row
    if must_fit and _needed_for_all(m, r, has_hits, total) > free:
        return False
    main = total + num_new_tokens
    slots = min(main, config.max_model_len)
    if row >= 0:
        before = m.pool.counters[0].num_free_blocks
        _remove_skipped_blocks(m, request, total)
        free += m.pool.counters[0].num_free_blocks - before
    if _get_num_blocks_to_allocate(m, request, slots, has_hits, asked, main, False) > free:
        return False
    if row < 0:
        row = _take_row(m, r)
    if has_hits:
        _allocate_new_computed_blocks(m, row, asked)
    _allocate_new_blocks(m, row, slots, main)
    if config.enable_caching:
        _cache_blocks(m, request, min(main, request.num_tokens))
    request.quiet_until = _quiet_until(m, row, total)
    return True


@compiled
def _needed_for_all(m, r, has_hits, total):
    """Blocks that the admission gate asks for."""
    request = m.requests[r]
    num_tokens = min(request.num_tokens, m.config[0].max_model_len)
    return _get_num_blocks_to_allocate(m, request, num_tokens, has_hits, total, num_tokens, True)


@compiled
def _take_row(m, r):
    """Give a request a row for its tables; there is one (``scheduler_compiled.needs_rows``)."""
    lookup = m.lookup[0]
    lookup.num_free_rows -= 1
    row = m.tables.free_rows[lookup.num_free_rows]
    m.requests[r].row = row
    return row


@compiled
def cache_blocks(m, r, num_computed_tokens):
    """Register the full blocks of so many tokens."""
    if m.config[0].enable_caching:
        _cache_blocks(m, m.requests[r], num_computed_tokens)


# -- giving back ---------------------------------------------------------------------------------
@compiled
def free(m, r):
    """Give back all blocks of a request, the last of each table first."""
    request, lookup = m.requests[r], m.lookup[0]
    request.quiet_until = 0
    if request.row < 0:
        return
    _free(m, request)
    m.tables.free_rows[lookup.num_free_rows] = request.row
    lookup.num_free_rows += 1
    request.row = -1


@compiled
def new_step_starts(m):
    """A scheduling step begins: what the step before has made is made."""
    m.lookup[0].step += 1


# -- accounting ----------------------------------------------------------------------------------
@compiled
def num_cached_free(pool):
    """Free blocks that still cache something."""
    total = 0
    for count in pool.cached_free_by_group:
        total += count
    return total
