"""Coordinators. Source: spec/manager.md 4; the fixed point is in tests/unit/core."""

from __future__ import annotations

import pytest

from sim.errors import ConfigError
from tests.helpers import (
    Prefixes,
    admit,
    allocate,
    free_list,
    full,
    make_kv_cache_config,
    mamba,
    put_in_cache,
    sliding,
)
from tests.helpers import tables as tables_of
from tests.spec.worlds import SIM, group, manager_of, num_registered, parallel_manager

NAMES = list(range(20))


def without_groups(**settings):
    config = make_kv_cache_config([], num_blocks=10)
    return SIM.KVCacheManager(config, 64, 4, 4, **settings)


# -- 4, 4.1 -------------------------------------------------------------------------------------
def test_no_group_and_caching_is_refused():
    with pytest.raises((ConfigError, AssertionError)):
        without_groups()


def test_no_group_without_caching_is_legal():
    """4.2: any number of groups, 0 included."""
    manager = without_groups(enable_caching=False)
    request = Prefixes(4).request("a", range(8))
    assert manager.get_computed_blocks(request) == ((), 0)
    assert allocate(manager, request, 8) == ()
    assert manager.block_pool.get_num_free_blocks() == 9
    manager.free(request)


def test_a_group_of_one_spec_twice_is_refused():
    """4.4: at least two distinct specs after merging."""
    with pytest.raises((ConfigError, AssertionError)):
        manager_of(full(4), full(4))


@pytest.mark.parametrize(("scheduler", "hashed"), [(24, 16), (16, 12), (8, 4)])
def test_block_sizes_must_divide_the_schedulers(scheduler, hashed):
    config = make_kv_cache_config([full(16), sliding(4, 8)], num_blocks=10)
    with pytest.raises((ConfigError, AssertionError)):
        SIM.KVCacheManager(config, 64, scheduler, hashed)


@pytest.mark.parametrize(
    ("flagged", "use_eagle", "expected"),
    [([], False, set()), ([], True, {0, 1, 2}), ([1], True, {1}), ([1], False, {1})],
)
def test_eagle_groups(flagged, use_eagle, expected):
    """4.1: the flagged ones; all if none is flagged and use_eagle is set."""
    specs = [full(4), sliding(4, 8), sliding(4, 20)]
    manager = manager_of(*specs, eagle_groups=flagged, use_eagle=use_eagle)
    assert set(manager.coordinator.eagle_group_ids) == expected


# -- 4.2 without caching ------------------------------------------------------------------------
def test_without_caching_blocks_return_to_the_front_of_the_queue():
    manager = manager_of(full(4), num_blocks=6, enable_caching=False)
    request = Prefixes(4).request("a", range(8))
    allocate(manager, request, 8)
    manager.free(request)
    assert free_list(manager) == [2, 1, 3, 4, 5]
    assert manager.get_num_common_prefix_blocks("a") == [0]


# -- 4.3 one group ------------------------------------------------------------------------------
def test_context_parallel_ranks_make_larger_blocks():
    """Blocks of 4 over two ranks hold 8 tokens: 20 tokens take 3, a replay hits 16."""
    manager = parallel_manager(full(4), 8, decode_context_parallel_size=2)
    prefixes = Prefixes(8)
    request = prefixes.request("a", range(20))
    assert admit(manager, request) == (0, ([1, 2, 3],))
    assert group(manager).block_size == 8
    rows, hit = manager.get_computed_blocks(prefixes.request("b", range(20)))
    assert (hit, list(rows[0])) == (16, [1, 2])


def test_both_kinds_of_context_parallelism_multiply():
    manager = parallel_manager(
        full(4), 24, decode_context_parallel_size=2, prefill_context_parallel_size=3
    )
    assert group(manager).block_size == 24


def test_several_groups_take_no_context_parallelism():
    config = make_kv_cache_config([full(4), sliding(4, 8)], num_blocks=20)
    with pytest.raises((ConfigError, AssertionError, ValueError)):
        SIM.KVCacheManager(config, 64, 8, 8, decode_context_parallel_size=2)


def test_one_sliding_group_with_eagle_writes_the_extra_block():
    """D.1: the write mask is shifted by one; no look-ahead block is added with one group."""
    manager = manager_of(sliding(4, 8), use_eagle=True, retention_interval=0)
    request = Prefixes(4).request("a", range(50))
    admit(manager, request)
    (table,) = tables_of(manager, request)
    column = manager.block_pool.prefix_id
    kept = "".join("X" if column[b] >= 0 else "." for b in table)
    # P = 50: the edge is at block 12 + 1, three blocks are kept, of which 12 are full.
    assert kept == "..........XX."


# -- 4.4 lookups by group -----------------------------------------------------------------------
def test_lookups_by_group_do_not_meet():
    """find_longest_cache_hit_per_group: each entry alone at the same length, no intersection."""
    manager = manager_of(full(4), sliding(4, 8), mamba(4))
    blocks = [
        put_in_cache(manager, 0, NAMES[:9]),
        put_in_cache(manager, 1, [5, 6]),
        put_in_cache(manager, 2, [2]),
    ]
    rows, lengths = manager.coordinator.find_longest_cache_hit_per_group(NAMES, 80)
    assert list(lengths) == [36, 28, 12]
    assert list(rows[0]) == [blocks[0][i] for i in range(9)]
    assert list(rows[1]) == [0] * 5 + [blocks[1][5], blocks[1][6]]
    assert list(rows[2]) == [0, 0, blocks[2][2]]
    assert manager.coordinator.find_longest_cache_hit(NAMES, 80)[1] == 0


def test_lookups_by_group_drop_for_eagle():
    manager = manager_of(full(4), sliding(4, 8), eagle_groups=[1])
    for group_id in (0, 1):
        put_in_cache(manager, group_id, NAMES)
    _, lengths = manager.coordinator.find_longest_cache_hit_per_group(NAMES, 80)
    assert list(lengths) == [80, 76]


# -- 4.4 registration ---------------------------------------------------------------------------
def test_several_groups_register_whole_scheduler_blocks():
    """A = floor(num_computed): 62 tokens register 3 blocks of 16 and 12 of 4, with one group 15."""
    hybrid = manager_of(full(16), sliding(4, 100))
    admit(hybrid, Prefixes(4).request("a", range(62)))
    assert [num_registered(hybrid, g) for g in (0, 1)] == [3, 12]
    alone = manager_of(sliding(4, 100))
    admit(alone, Prefixes(4).request("a", range(62)))
    assert num_registered(alone, 0) == 15


def test_the_look_ahead_block_exists_beyond_the_first_boundary_only():
    """Eagle managers register min(num_computed, A + own block), but only when A > 0."""
    manager = manager_of(full(16), sliding(4, 8), eagle_groups=[1])
    prefixes = Prefixes(4)
    for name, num_tokens, considered in (("a", 15, 0), ("b", 16, 4), ("c", 18, 4), ("d", 20, 5)):
        allocate(manager, prefixes.request(name, [name] * num_tokens), num_tokens)
        assert group(manager, 1).num_cached_block.get(name, 0) == considered


def test_free_visits_the_groups_in_order():
    """4.1: hashless of the last group first; cached of group 0, then 1, each tail first."""
    manager = manager_of(full(4), sliding(4, 40), mamba(4), num_blocks=12)
    request = Prefixes(4).request("a", range(10))
    allocate(manager, request, 8)
    allocate(manager, request, 2)
    assert tables_of(manager, request) == [[1, 2, 6], [3, 4, 7], [0, 5, 8]]
    popped = manager.pop_blocks_for_free(request)
    assert [block_id for block_id in popped if block_id] == [1, 2, 6, 3, 4, 7, 5, 8]
