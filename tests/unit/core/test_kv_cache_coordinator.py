"""Several groups. Source: spec/manager.md 4, appendix A (Q1, Q3), appendix C 7 and 8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import ConfigError
from tests.helpers import (
    Prefixes,
    admit,
    allocate,
    free_list,
    full,
    make_manager,
    mamba,
    put_in_cache,
    sliding,
)
from tests.helpers import tables as tables_of

NAMES = list(range(20))


def registered(manager, request, group_id):
    """Return X for each table entry that is in the index, a dot for the others."""
    column = manager.block_pool.prefix_id
    table = tables_of(manager, request)[group_id]
    return "".join("X" if block_id and column[block_id] >= 0 else "." for block_id in table)


# -- the fixed point --------------------------------------------------------------------
def fixed_point_world(implementation):
    """Full caches blocks 0..17; sw8 needs runs of 2, sw20 runs of 5."""
    specs = [full(4), sliding(4, 8), sliding(4, 20)]
    manager = make_manager(implementation, specs, num_blocks=60)
    cached = [range(18), [8, 9, 12, 13, 15, 16], [*range(5, 10), *range(11, 16)]]
    return manager, [put_in_cache(manager, g, names) for g, names in enumerate(cached)]


LOOKUPS = [(0, 80, 72), (1, 72, 68), (2, 68, 64), (1, 64, 56), (2, 56, 40), (1, 40, 40)]


@pytest.mark.parametrize(("group_id", "limit", "length"), [*LOOKUPS, (2, 40, 40)])
def test_lookups_of_the_fixed_point(implementation, group_id, limit, length):
    manager, _ = fixed_point_world(implementation)
    group = manager.coordinator.single_type_managers[group_id]
    (row,) = group.find_longest_cache_hit(NAMES, limit, [group_id], False, 4)
    assert len(row) * 4 == length


def test_the_fixed_point(implementation):
    manager, blocks = fixed_point_world(implementation)
    rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 80)
    assert length == 40
    assert list(rows[0]) == [blocks[0][i] for i in range(10)]
    assert list(rows[1]) == [0] * 8 + [blocks[1][8], blocks[1][9]]
    assert list(rows[2]) == [0] * 5 + [blocks[2][i] for i in range(5, 10)]
    assert manager.coordinator.num_uncached_common_prefix_tokens == 32


def test_the_fixed_point_with_one_eagle_group(implementation):
    """sw8 matches 80 and drops a block: 76; the others follow, and nothing is dropped twice."""
    specs = [full(4), sliding(4, 8), sliding(4, 20)]
    manager = make_manager(implementation, specs, num_blocks=80, eagle_groups=[1])
    for group_id in range(3):
        put_in_cache(manager, group_id, NAMES)
    eagle = manager.coordinator.single_type_managers[1]
    assert len(eagle.find_longest_cache_hit(NAMES, 80, [1], True, 4)[0]) == 19
    assert len(eagle.find_longest_cache_hit(NAMES, 76, [1], False, 4)[0]) == 19
    rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 80)
    assert length == 76
    assert [len(row) for row in rows] == [19, 19, 19]


def test_specs_are_merged_and_their_managers_share_the_eagle_flag(implementation):
    """[sw8, full, sw8 (eagle), sw20]: the first group shares the third one's spec."""
    specs = [sliding(4, 8), full(4), sliding(4, 8), sliding(4, 20)]
    manager = make_manager(implementation, specs, num_blocks=20, eagle_groups=[2])
    flags = [m.use_eagle for m in manager.coordinator.single_type_managers]
    assert flags == [True, False, True, False]


def test_groups_of_one_spec_hit_together(implementation):
    """Both groups of the merged entry must hold a position."""
    specs = [sliding(4, 8), full(4), sliding(4, 8)]
    manager = make_manager(implementation, specs, num_blocks=60)
    put_in_cache(manager, 1, NAMES[:8])
    put_in_cache(manager, 0, [2, 3, 6, 7])
    put_in_cache(manager, 2, [2, 3, 7])
    rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 32)
    assert length == 16
    assert [len(row) for row in rows] == [4, 4, 4]


# -- unequal block sizes ----------------------------------------------------------------
def test_mixed_sizes_with_eagle(implementation):
    manager = make_manager(implementation, [full(16), sliding(4, 8)], num_blocks=60, use_eagle=True)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(70))
    admit(manager, request)
    assert registered(manager, request, 0) == "XXXX."
    assert registered(manager, request, 1) == "..XXX.XXX.XXX.XXX."
    managers = manager.coordinator.single_type_managers
    assert [m.num_cached_block["a"] for m in managers] == [4, 17]
    rows, hit = manager.get_computed_blocks(prefixes.request("b", range(70)))
    assert hit == 48
    first = tables_of(manager, request)
    assert list(rows[0]) == first[0][:3]
    assert list(rows[1]) == [0] * 10 + first[1][10:12]


def test_mixed_sizes_without_eagle(implementation):
    manager = make_manager(implementation, [full(16), sliding(4, 8)], num_blocks=60)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(70))
    admit(manager, request)
    assert registered(manager, request, 0) == "XXXX."
    assert registered(manager, request, 1) == "..XX..XX..XX..XX.."
    managers = manager.coordinator.single_type_managers
    assert [m.num_cached_block["a"] for m in managers] == [4, 16]
    assert manager.get_computed_blocks(prefixes.request("b", range(70)))[1] == 64


def test_a_coarse_group_uses_every_other_identity(implementation):
    """Sizes 16 and 32: the identities of blocks of 32 are those of the prefixes B and D (2.5)."""
    manager = make_manager(implementation, [full(16), full(32)], num_blocks=60)
    request = Prefixes(16).request("a", range(80))
    admit(manager, request)
    column = manager.block_pool.prefix_id
    first, second = tables_of(manager, request)
    # Hybrid registers whole scheduler blocks of 32 only: 64 of 80 tokens.
    assert [column[b] for b in first] == [*request.prefix_ids[:4], -1]
    assert [column[b] for b in second] == [request.prefix_ids[1], request.prefix_ids[3], -1]


# -- quirks that stay -------------------------------------------------------------------
def test_a_hit_can_exceed_the_full_attention_rows(implementation):
    """Q1: full gives [1,2,3], the state of 64 tokens is found, the hit is 64."""
    manager = make_manager(implementation, [full(16), mamba(16)], num_blocks=20, use_eagle=True)
    blocks = put_in_cache(manager, 0, NAMES[:4])
    state = put_in_cache(manager, 1, [3])
    rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 79)
    assert length == 64
    assert list(rows[0]) == [blocks[0], blocks[1], blocks[2]]
    assert list(rows[1]) == [0, 0, 0, state[3]]


def test_only_the_first_full_attention_entry_is_truncated(implementation):
    """Q3: a hit of 64 tokens comes with 8 rows of 16 in the second full-attention group."""
    wider = replace(full(16), head_size=16, head_size_v=16)
    manager = make_manager(implementation, [full(16), wider, sliding(16, 20)], num_blocks=40)
    put_in_cache(manager, 0, NAMES[:8])
    put_in_cache(manager, 1, NAMES[:8])
    put_in_cache(manager, 2, [2, 3])
    rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 128)
    assert length == 64
    assert [len(row) for row in rows] == [4, 8, 4]


# -- the hint ---------------------------------------------------------------------------
def test_the_hint_tells_what_other_groups_know_to_be_shared(implementation):
    manager = make_manager(implementation, [full(4), mamba(4)], num_blocks=40)
    assert manager.coordinator.num_uncached_common_prefix_tokens == 0
    put_in_cache(manager, 0, NAMES[:5])
    put_in_cache(manager, 1, [1])
    rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 40)
    assert length == 8
    assert [len(row) for row in rows] == [2, 2]
    assert manager.coordinator.num_uncached_common_prefix_tokens == 12


def test_there_is_no_hint_with_one_group_or_without_caching(implementation):
    one = make_manager(implementation, [full(4)], num_blocks=40)
    put_in_cache(one, 0, NAMES[:5])
    one.coordinator.find_longest_cache_hit(NAMES, 40)
    assert one.coordinator.num_uncached_common_prefix_tokens == 0
    off = make_manager(implementation, [full(4), mamba(4)], num_blocks=40, enable_caching=False)
    assert off.coordinator.find_longest_cache_hit(NAMES, 40) == (([], []), 0)
    assert off.coordinator.num_uncached_common_prefix_tokens == 0
    assert off.get_num_common_prefix_blocks("nobody") == [0, 0]


# -- release, retention -----------------------------------------------------------------
def test_free_order_of_two_groups(implementation):
    """Hashless of the last group first; at the tail group 0's cached blocks, then group 1's."""
    manager = make_manager(implementation, [full(4), sliding(4, 40)], num_blocks=12)
    request = Prefixes(4).request("a", range(10))
    assert allocate(manager, request, 10) == ([1, 2, 3], [4, 5, 6])
    manager.free(request)
    assert free_list(manager) == [6, 3, 7, 8, 9, 10, 11, 2, 1, 5, 4]


@pytest.mark.parametrize(
    ("specs", "retention"),
    [
        ([full(4), sliding(4, 8)], -4),
        ([full(4), sliding(4, 8)], 6),
        ([full(4)], 8),
    ],
)
@pytest.mark.parametrize("caching", [True, False])
def test_retention_is_checked_at_construction(implementation, specs, retention, caching):
    with pytest.raises((ValueError, ConfigError)):
        make_manager(
            implementation,
            specs,
            num_blocks=20,
            retention_interval=retention,
            enable_caching=caching,
        )


@pytest.mark.parametrize(
    ("retention", "expected"),
    [(None, "XXXXXXXXXXXX."), (0, "..........XX."), (16, "..XX..XX..XX.")],
)
def test_retention_thins_out_the_sliding_group_only(implementation, retention, expected):
    """50 tokens, w = 8, blocks of 4: an exact replay needs blocks 10 and 11 (48 tokens)."""
    manager = make_manager(
        implementation, [full(4), sliding(4, 8)], num_blocks=60, retention_interval=retention
    )
    request = Prefixes(4).request("a", range(50))
    admit(manager, request)
    assert registered(manager, request, 0) == "XXXXXXXXXXXX."
    assert registered(manager, request, 1) == expected


def test_a_hit_of_one_group_survives_the_allocation_of_another(implementation):
    """All groups take their hits before any group takes new blocks."""
    manager = make_manager(implementation, [full(4), sliding(4, 40)], num_blocks=9)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(9))
    admit(manager, first)
    manager.free(first)
    # Queue: two hashless ones, two never used, then the cached 2, 1 (full) and 5, 4 (sliding).
    assert free_list(manager) == [6, 3, 7, 8, 2, 1, 5, 4]
    hit, new = admit(manager, prefixes.request("b", [*range(8), *"wxyzuvwx"]))
    assert (hit, new) == (8, ([6, 3], [7, 8]))
