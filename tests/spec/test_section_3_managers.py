"""Attention kinds. Source: spec/manager.md 3; what tests/unit/core proves already is not here."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.errors import ConfigError
from tests.helpers import (
    Prefixes,
    admit,
    allocate,
    decode,
    free_list,
    full,
    make_manager,
    mamba,
    put_in_cache,
    sliding,
)
from tests.helpers import tables as tables_of
from tests.spec.worlds import (
    SIM,
    chunked,
    cross,
    group,
    manager_of,
    num_registered,
    predict,
    rswa,
    sink,
)


def lookup(manager, max_length):
    """Return the row that the only group finds among prefixes named 0, 1, 2, ..."""
    names = list(range(max_length // 4 + 1))
    (row,) = group(manager).find_longest_cache_hit(names, max_length, [0], False, 4)
    return list(row)


# -- 3.1 base -----------------------------------------------------------------------------------
def test_five_blocks_are_two_new_and_three_evictable():
    """7 usable blocks; 3 cached free ones are hit by a 20-token request of blocks of 4."""
    manager = manager_of(full(4), num_blocks=8)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(12))
    admit(manager, first)
    manager.free(first)
    second = prefixes.request("b", range(20))
    rows, hit = manager.get_computed_blocks(second)
    assert predict(manager, second, 20, rows, hit) == 5


def test_surplus_blocks_of_rejected_drafts_are_kept():
    """3.1: k <= 0 allocates nothing and trims nothing."""
    manager = manager_of(full(4))
    request = Prefixes(4).request("a", range(10))
    allocate(manager, request, 10, num_lookahead_tokens=10)
    assert tables_of(manager, request) == [[1, 2, 3, 4, 5]]
    assert decode(manager, request) in (([],), manager.empty_kv_cache_blocks)
    assert tables_of(manager, request) == [[1, 2, 3, 4, 5]]


def test_ids_of_new_blocks_are_drained_for_full_attention_only():
    """take_new_block_ids: the exact types full, MLA, hidden state; not windows, not states."""
    manager = manager_of(full(4), mamba(4))
    request = Prefixes(4).request("a", range(40))
    allocate(manager, request, 8)
    assert tables_of(manager, request) == [[1, 2], [0, 3]]
    assert list(manager.take_new_block_ids()) == [1, 2]
    assert list(manager.take_new_block_ids()) == []
    windows = manager_of(sliding(4, 8))
    allocate(windows, Prefixes(4).request("a", range(40)), 8)
    assert list(windows.take_new_block_ids()) == []


def test_clearing_stops_at_the_first_null_entry():
    """Blocks of one call are freed highest index first, each call behind the one before."""
    manager = manager_of(sliding(4, 4), num_blocks=12)
    request = Prefixes(4).request("a", range(24))
    allocate(manager, request, 24)
    manager.remove_skipped_blocks("a", 12)  # S = 9: entries 0, 1
    manager.remove_skipped_blocks("a", 21)  # S = 18: entries 2, 3
    assert tables_of(manager, request) == [[0, 0, 0, 0, 5, 6]]
    assert free_list(manager) == [7, 8, 9, 10, 11, 2, 1, 4, 3]


def test_reading_an_unknown_request_inserts_nothing():
    """Q11: the reference leaves empty entries behind."""
    manager = manager_of(full(4), mamba(4))
    request = Prefixes(4).request("a", range(40))
    manager.remove_skipped_blocks("a", 40)
    predict(manager, request, 40)
    manager.get_num_common_prefix_blocks("a")
    assert [dict(group(manager, g).req_to_blocks) for g in (0, 1)] == [{}, {}]


# -- 3.4 chunked local --------------------------------------------------------------------------
@pytest.mark.parametrize(("computed", "skipped"), [(13, 8), (8, 8), (7, 0)])
def test_chunks_before_the_current_one_are_skipped(computed, skipped):
    manager = manager_of(chunked(4, 8))
    assert group(manager).get_num_skipped_tokens(computed) == skipped


@pytest.mark.parametrize(
    ("max_length", "cached", "row"),
    [
        (15, [2], [0, 0, "x"]),
        (15, [], [0, 0]),  # 8 tokens, with an empty cache
        (16, [], [0, 0, 0, 0]),  # 16 tokens, with an empty cache
        (23, [4], [0, 0, 0, 0, "x"]),
        (0, [], []),
        (7, [0], ["x"]),
    ],
)
def test_rows_of_chunked_local(max_length, cached, row):
    """c = 8, blocks of 4: whole chunks before the current one count without a look."""
    manager = manager_of(chunked(4, 8))
    blocks = put_in_cache(manager, 0, cached)
    expected = [blocks[cached[0]] if entry == "x" else entry for entry in row]
    assert lookup(manager, max_length) == expected


def test_a_miss_ends_the_row_of_chunked_local():
    manager = manager_of(chunked(4, 16))
    blocks = put_in_cache(manager, 0, [4, 6])
    assert lookup(manager, 31) == [0, 0, 0, 0, blocks[4]]


def test_chunked_local_refuses_what_the_reference_asserts_against():
    """3.4: no EAGLE drop, and blocks of the alignment's size. Here a manager is not even built."""
    with pytest.raises(ConfigError, match="use_eagle"):
        manager_of(chunked(4, 8), use_eagle=True)
    with pytest.raises(ConfigError, match="scheduler_block_size"):
        manager_of(full(8), chunked(4, 8))


def test_everything_of_chunked_local_is_registered():
    manager = manager_of(full(4), chunked(4, 8))
    admit(manager, Prefixes(4).request("a", range(30)))
    assert [num_registered(manager, g) for g in (0, 1)] == [7, 7]
    assert manager.get_num_common_prefix_blocks("a") == [8, 0]


def test_full_attention_bounds_a_chunked_group():
    """Q8: with a full group beside it, the fixed point asks for what was really computed."""
    manager = manager_of(full(4), chunked(4, 8))
    prefixes = Prefixes(4)
    fresh = prefixes.request("a", range(30))
    assert manager.get_computed_blocks(fresh)[1] == 0
    admit(manager, fresh)
    rows, hit = manager.get_computed_blocks(prefixes.request("b", range(30)))
    assert hit == 28
    assert list(rows[1]) == [0] * 6 + [tables_of(manager, fresh)[1][6]]


def test_admission_of_a_chunked_group_is_capped():
    """3: cdiv(min(8 + 8, 8192), 4) = 4 blocks for 40 tokens in batches of 8, and 10 full ones."""
    for num_usable, admitted in ((14, True), (13, False)):
        specs = [full(4), chunked(4, 8)]
        manager = make_manager(SIM, specs, num_blocks=num_usable + 1, max_num_batched_tokens=8)
        request = Prefixes(4).request("a", range(40))
        new = manager.allocate_slots(request, 8, full_sequence_must_fit=True)
        assert (new is not None) is admitted


# -- 3.5 recurrent state, mode "all" ------------------------------------------------------------
def test_tables_of_mode_all():
    """18 tokens in chunks of 10 and 8, then a decode step: a state at every block boundary."""
    manager = manager_of(mamba(4, "all"))
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(18))
    allocate(manager, request, 10)
    assert tables_of(manager, request) == [[1, 2, 3]]
    allocate(manager, request, 8)
    assert tables_of(manager, request) == [[0, 0, 3, 4, 5]]
    decode(manager, request)
    assert tables_of(manager, request) == [[0, 0, 0, 0, 5]]
    manager.new_step_starts()
    again = prefixes.request("b", range(18))
    assert manager.get_computed_blocks(again) == (([0, 0, 0, 4],), 16)
    shorter = prefixes.request("c", range(16))
    assert manager.get_computed_blocks(shorter) == (([0, 0, 3],), 12)


def test_speculation_in_mode_all_adds_blocks_behind_the_table():
    """num_tokens is increased by bs * s: 10 tokens and two drafts' states are 3 + 2 blocks."""
    manager = manager_of(mamba(4, "all", 2))
    request = Prefixes(4).request("a", range(40))
    assert predict(manager, request, 10) == 5
    assert allocate(manager, request, 10) == ([1, 2, 3, 4, 5],)


def test_common_prefix_of_recurrent_groups_is_zero():
    """D.3."""
    manager = manager_of(full(4), mamba(4))
    admit(manager, Prefixes(4).request("a", range(18)), 16)
    assert manager.get_num_common_prefix_blocks("a") == [4, 0]


def test_nothing_is_skipped_before_the_first_token():
    """S(0) = -1 acts as nothing."""
    manager = manager_of(mamba(4, "all"))
    request = Prefixes(4).request("a", range(18))
    allocate(manager, request, 10)
    manager.remove_skipped_blocks("a", 0)
    assert tables_of(manager, request) == [[1, 2, 3]]


# -- 3.6 cross attention ------------------------------------------------------------------------
def test_cross_attention_takes_its_encoder_tokens_once():
    """A single allocation on the step with the encoder's input, nothing afterwards."""
    manager = manager_of(full(4), cross(4), enable_caching=False)
    request = Prefixes(4).request("a", range(20))
    allocate(manager, request, 6, num_encoder_tokens=10)
    assert tables_of(manager, request) == [[1, 2], [3, 4, 5]]
    allocate(manager, request, 6)
    assert tables_of(manager, request) == [[1, 2, 6], [3, 4, 5]]
    manager.free(request)
    assert len(free_list(manager)) == 59


def test_cross_attention_caches_nothing():
    manager = manager_of(full(4), cross(4), enable_caching=False)
    only = group(manager, 1)
    with pytest.raises(NotImplementedError):
        only.find_longest_cache_hit([0, 1], 8, [1], False, 4)
    with pytest.raises(ValueError):
        only.cache_blocks("a", [0, 1], 8, 8)
    assert only.get_num_common_prefix_blocks("a") == 0


# -- 3.7 RSWA -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("total", "cleared"), [(31, []), (32, [5]), (36, [5, 6]), (43, [5, 6, 7])])
def test_a_window_over_generated_tokens(total, cleared):
    """Blocks of 4, window 8, 18 prompt tokens: the gap [5, max(18, total - 8) // 4) goes."""
    manager = manager_of(rswa(4, 8))
    request = Prefixes(4).request("a", range(18), max_tokens=40)
    allocate(manager, request, 18)
    request.num_tokens = total
    allocate(manager, request, total - 18)
    (table,) = tables_of(manager, request)
    before = list(table)
    manager.remove_skipped_blocks("a", total, 18)
    (table,) = tables_of(manager, request)
    assert [i for i, block_id in enumerate(table) if not block_id] == cleared
    manager.remove_skipped_blocks("a", total)  # without the prompt's length: nothing
    assert [b for b in table if b] == [b for i, b in enumerate(before) if i not in cleared]
    check_integrity(manager)


def test_cleared_blocks_can_be_hit_until_they_are_evicted():
    manager = manager_of(rswa(4, 8))
    prefixes = Prefixes(4)
    tokens = list(range(44))
    request = prefixes.request("a", tokens[:18], max_tokens=0)
    request.prefix_ids = prefixes.of(tokens)
    allocate(manager, request, 18)
    request.num_tokens = 44
    allocate(manager, request, 26)
    manager.remove_skipped_blocks("a", 43, 18)
    rows, hit = manager.get_computed_blocks(prefixes.request("b", tokens))
    assert hit == 40
    assert list(rows[0]) == list(range(1, 11))


# -- 3.8 attention with sinks (Q2) --------------------------------------------------------------
def test_the_factory_cannot_build_the_sink_manager():
    """Q2, as the reference: a TypeError there, an error that names the mend here."""
    with pytest.raises((ConfigError, TypeError), match=r"Q2|[Ss]ink"):
        manager_of(sink(4, 8))


def test_mended_sinks_are_taken_from_the_head_of_the_queue():
    """sink_len / bs blocks leave for ever, at construction."""
    manager = manager_of(sink(4, 8), num_blocks=10, fixes=frozenset({"Q2"}))
    assert list(group(manager).permanent_blocks) == [1, 2]
    assert free_list(manager) == [3, 4, 5, 6, 7, 8, 9]
    request = Prefixes(4).request("a", range(9))
    assert allocate(manager, request, 9) == ([3, 4, 5],)
    manager.free(request)
    assert sorted(free_list(manager)) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("length", [0, 6, -4])
def test_a_sink_is_a_positive_number_of_whole_blocks(length):
    with pytest.raises((ConfigError, AssertionError, ValueError)):
        manager_of(sink(4, length), fixes=frozenset({"Q2"}))


# -- appendix D ---------------------------------------------------------------------------------
def test_full_attention_tolerates_a_length_beyond_its_identities():
    """D.6: full attention alone does."""
    manager = manager_of(full(4))
    blocks = put_in_cache(manager, 0, [0, 1])
    (row,) = group(manager).find_longest_cache_hit([0, 1], 40, [0], False, 4)
    assert list(row) == [blocks[0], blocks[1]]


def test_rows_belong_to_the_call():
    """D.11: cutting a row short changes no later answer."""
    manager = manager_of(full(4))
    put_in_cache(manager, 0, [0, 1, 2])
    first = lookup(manager, 12)
    manager.coordinator.find_longest_cache_hit([0, 1, 2], 12)[0][0].clear()
    assert lookup(manager, 12) == first
    assert len(first) == 3
