"""Sliding window. Source: spec/manager.md 3.3, appendix C 2, 3, 4, appendix D 7."""

from __future__ import annotations

import pytest

from tests.helpers import (
    Prefixes,
    admit,
    allocate,
    decode,
    free_list,
    full,
    make_manager,
    mask_text,
    num_held,
    put_in_cache,
    sliding,
)
from tests.helpers import tables as tables_of


def group_with(implementation, spec, cached, **settings):
    """Return the group's manager and its blocks, the given positions cached."""
    manager = make_manager(implementation, [spec], num_blocks=60, **settings)
    return manager.coordinator.single_type_managers[0], put_in_cache(manager, 0, cached)


CACHED = [2, 3, 4, 5, 11, 12, 13]
TABLE = [(m, 0, []) for m in range(5)] + [(5, 5, [2, 3, 4])]
TABLE += [(m, 6, [3, 4, 5]) for m in range(6, 14)]
TABLE += [(m, 14, [11, 12, 13]) for m in (14, 15)]


@pytest.mark.parametrize(("max_length", "hit", "tail"), TABLE)
def test_hits_of_the_document_example(implementation, max_length, hit, tail):
    group, blocks = group_with(implementation, sliding(1, 4), CACHED)
    (row,) = group.find_longest_cache_hit(list(range(15)), max_length, [0], False, 1)
    assert list(row) == [0] * (hit - len(tail)) + [blocks[i] for i in tail]


@pytest.mark.parametrize(("more", "hit"), [([], 5), ([10], 13)])
def test_hits_of_the_document_example_with_eagle(implementation, more, hit):
    group, blocks = group_with(implementation, sliding(1, 4), CACHED + more)
    (row,) = group.find_longest_cache_hit(list(range(15)), 15, [0], True, 1)
    assert list(row) == [0] * (hit - 3) + [blocks[i] for i in range(hit - 3, hit)]


def test_a_prefix_shorter_than_the_window_is_a_hit(implementation):
    group, blocks = group_with(implementation, sliding(1, 4), [0, 1])
    (row,) = group.find_longest_cache_hit(list(range(15)), 15, [0], False, 1)
    assert list(row) == [blocks[0], blocks[1]]


@pytest.mark.parametrize(
    ("window", "cached", "eagle", "hit", "tail"),
    [
        (9, range(2, 7), False, 16, [2, 3]),
        (9, range(3, 7), False, 0, []),
        (9, range(3, 8), False, 32, [6, 7]),
        (9, range(5), True, 16, [2, 3]),
        (9, range(4), True, 0, []),
        (41, range(5), True, 0, []),  # Q4: 16 would be sound
    ],
)
def test_hits_end_on_aligned_boundaries(implementation, window, cached, eagle, hit, tail):
    """Blocks of 4, alignment 16. With eagle the match is one block longer than what is kept."""
    group, blocks = group_with(implementation, sliding(4, window), cached)
    (row,) = group.find_longest_cache_hit(list(range(8)), 32, [0], eagle, 16)
    assert len(row) * 4 == hit
    assert [b for b in row if b] == [blocks[i] for i in tail]
    assert list(row)[len(row) - len(tail) :] == [blocks[i] for i in tail]


@pytest.mark.parametrize(
    ("alignment", "retention", "eagle", "expected"),
    [
        (4, None, False, "XXXXXXXXXXXXXXXX"),
        (16, None, False, "..XX..XX..XX..XX"),
        (16, None, True, "..XXX.XXX.XXX.XX"),
        (4, 16, False, "..XX..XX..XX..XX"),
        (4, 0, False, "..........XX...."),
        (4, 0, True, "..........XXX..."),
    ],
)
def test_masks(implementation, alignment, retention, eagle, expected):
    group, _ = group_with(implementation, sliding(4, 8), [], use_eagle=eagle)
    mask = group.reachable_block_mask(0, 16, alignment, retention, 50)
    assert mask_text(mask, 16) == expected
    if retention is not None or alignment == 16:
        part = group.reachable_block_mask(3, 13, alignment, retention, 50)
        assert mask_text(part, 10) == expected[3:13]


@pytest.mark.parametrize(("computed", "skipped"), [(0, 0), (3, 0), (4, 1), (7, 4)])
def test_skipped_tokens(implementation, computed, skipped):
    """w = 4: the next token, 7, sees 4..7, so 4 tokens are no longer needed."""
    group, _ = group_with(implementation, sliding(1, 4), [])
    assert group.get_num_skipped_tokens(computed) == skipped


@pytest.mark.parametrize(("eagle", "hit"), [(False, 0), (True, 24)])
def test_a_window_of_one_token(implementation, eagle, hit):
    manager = make_manager(implementation, [sliding(4, 1)], num_blocks=30, use_eagle=eagle)
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(30)))
    rows, found = manager.get_computed_blocks(prefixes.request("b", range(30)))
    assert found == hit
    assert list(rows[0]) == [0] * (hit // 4)


# -- the 112-token request: a full group and two sliding ones, w = 32, blocks of 16 ---------
def trio(implementation, num_blocks=40, **settings):
    specs = [full(16), sliding(16, 32), sliding(16, 32)]
    return make_manager(implementation, specs, num_blocks=num_blocks, **settings)


def test_prefill_in_one_step_then_eleven_then_fourteen(implementation):
    manager = trio(implementation)
    request = Prefixes(16).request("r", range(112))
    assert allocate(manager, request, 112) == (
        list(range(1, 8)),
        list(range(8, 15)),
        list(range(15, 22)),
    )
    assert num_held(manager, request) == 21
    manager.remove_skipped_blocks("r", 112)
    assert num_held(manager, request) == 11
    assert tables_of(manager, request)[1:] == [[0] * 5 + [13, 14], [0] * 5 + [20, 21]]
    assert decode(manager, request) == ([22], [23], [24])
    assert num_held(manager, request) == 14


def test_free_queue_after_the_112_token_request(implementation):
    manager = trio(implementation)
    request = Prefixes(16).request("r", range(112))
    allocate(manager, request, 112)
    decode(manager, request)  # clears 12..8 and 19..15, then takes 22, 23, 24
    manager.free(request)
    head = [24, 23, 22, *range(25, 40)]
    tail = [*range(12, 7, -1), *range(19, 14, -1), *range(7, 0, -1), 14, 13, 21, 20]
    assert free_list(manager) == head + tail


def test_prefill_in_chunks_of_one_block(implementation):
    manager = trio(implementation, max_num_batched_tokens=16)
    request = Prefixes(16).request("r", range(112))
    held = []
    for _ in range(7):
        allocate(manager, request, 16)
        held.append(num_held(manager, request))
    assert held == [3, 6, 9, 10, 11, 12, 13]
    manager.remove_skipped_blocks("r", 112)
    assert num_held(manager, request) == 11


@pytest.mark.parametrize(("num_usable", "admitted"), [(15, True), (14, False)])
def test_admission_counts_the_window_only(implementation, num_usable, admitted):
    """7 + 4 + 4 blocks with batches of 16: cdiv(32 - 1 + 16, 16) + 1 = 4 per sliding group."""
    manager = trio(implementation, num_blocks=num_usable + 1, max_num_batched_tokens=16)
    request = Prefixes(16).request("r", range(112))
    new = manager.allocate_slots(request, 16, full_sequence_must_fit=True)
    assert (new is not None) is admitted


def test_without_a_batch_limit_admission_counts_everything(implementation):
    """The cap is cdiv(min(31 + 8192, 8192), 16) + 1 blocks: no cap for 112 tokens, so 21."""
    for num_usable, admitted in ((21, True), (20, False)):
        manager = trio(implementation, num_blocks=num_usable + 1)
        request = Prefixes(16).request("r", range(112))
        new = manager.allocate_slots(request, 16, full_sequence_must_fit=True)
        assert (new is not None) is admitted


def test_a_hit_behind_the_window_holds_only_the_window(implementation):
    """A second request over the same 112 tokens: hit 96, S(96) = 65, so 4 null entries."""
    manager = trio(implementation, num_blocks=60)
    prefixes = Prefixes(16)
    first = prefixes.request("a", range(112))
    allocate(manager, first, 112)
    second = prefixes.request("b", range(112))
    hit, _ = admit(manager, second)
    assert hit == 96
    first_tables, second_tables = tables_of(manager, first), tables_of(manager, second)
    assert second_tables[0][:6] == first_tables[0][:6]
    assert second_tables[1][:6] == [0, 0, 0, 0, *first_tables[1][4:6]]
    assert second_tables[2][:6] == [0, 0, 0, 0, *first_tables[2][4:6]]
