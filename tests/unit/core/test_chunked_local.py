"""Chunks. Source: spec/manager.md 3.4, 3 (cap), Q8."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.errors import ConfigError
from tests.helpers import Prefixes, admit, allocate, full, put_in_cache, sliding, tables
from tests.unit.core.kinds import chunked, held_while_decoding, native

NAMES = list(range(20))


def lookup(cached, max_length, **settings):
    """Return the row of one group with chunks of 8 and blocks of 4; b stands for a real block."""
    manager = native([chunked(4, 8)], num_blocks=40, **settings)
    blocks = put_in_cache(manager, 0, cached)
    names = {block: name for name, block in blocks.items()}
    (row,), length = manager.coordinator.find_longest_cache_hit(NAMES, max_length)
    assert length == 4 * len(row)
    return [names.get(block) for block in row]


@pytest.mark.parametrize(("computed", "skipped"), [(13, 8), (8, 8), (7, 0), (0, 0)])
def test_skipped_tokens(computed, skipped):
    (manager,) = native([chunked(4, 8)], num_blocks=9).coordinator.single_type_managers
    assert manager.get_num_skipped_tokens(computed) == skipped


@pytest.mark.parametrize(
    ("cached", "max_length", "row"),
    [
        ([2], 15, [None, None, 2]),
        ([], 15, [None, None]),
        ([], 16, [None] * 4),
        ([4], 23, [None] * 4 + [4]),
        ([], 0, []),
    ],
)
def test_all_before_the_chunk_counts_as_computed(cached, max_length, row):
    assert lookup(cached, max_length) == row


@pytest.mark.parametrize(
    ("cached", "max_length", "row"),
    [
        ([], 15, []),
        ([], 16, []),
        ([2], 15, [None, None, 2]),
        # Nothing of the last chunk: the one before shows that its prefix was seen.
        ([2, 3], 23, [None, None, 2, 3]),
        ([0], 23, [0]),
        # A block behind a gap in its chunk is no evidence that can be used.
        ([1], 15, []),
    ],
)
def test_mended_a_hit_ends_with_cached_blocks(cached, max_length, row):
    assert lookup(cached, max_length, fixes={"Q8"}) == row


def test_the_mend_leaves_layouts_alone_that_another_group_bounds():
    """Full attention has 16 tokens; at a chunk's border nothing of the chunk is needed."""
    for fixes in (frozenset(), {"Q8"}):
        manager = native([full(4), chunked(4, 8)], num_blocks=40, fixes=fixes)
        put_in_cache(manager, 0, NAMES[:4])
        rows, length = manager.coordinator.find_longest_cache_hit(NAMES, 23)
        assert length == 16
        assert rows[1] == [0] * 4


def test_a_chunk_goes_when_it_is_over():
    manager = native([chunked(4, 8)], num_blocks=40)
    request = Prefixes(4).request("a", range(6), max_tokens=30)
    allocate(manager, request, 6)
    held = dict(held_while_decoding(manager, request, 20))
    assert tables(manager, request) == [[0, 0, 0, 0, 5]]
    # 8 computed: the first chunk is over, the third block is taken.
    assert [held[n] for n in (6, 7, 8, 11, 12, 15, 16)] == [2, 2, 1, 1, 2, 2, 1]
    (group,) = manager.coordinator.single_type_managers
    assert {n: group.num_blocks_held(n) for n in held} == held
    # Only beginnings of blocks are looked at, in the last chunk.
    assert manager.coordinator.most_blocks_held(5, 20) == 2


def test_admission_counts_a_chunk_and_a_batch():
    """cdiv(min(8 + 4, 8192), 4) = 3 blocks for any prompt; 100 tokens are 25 blocks."""
    for usable, fits in [(3, True), (2, False)]:
        manager = native([chunked(4, 8)], num_blocks=usable + 1, max_num_batched_tokens=4)
        request = Prefixes(4).request("a", range(100))
        _, new = admit_first(manager, request)
        assert (new is not None) == fits


def admit_first(manager, request):
    new = manager.allocate_slots(request, 4, full_sequence_must_fit=True)
    return 0, new


@pytest.mark.parametrize(
    ("specs", "settings"),
    [([chunked(4, 8)], {"use_eagle": True}), ([chunked(4, 8), full(8)], {})],
)
def test_lookups_that_the_reference_fails_at_are_refused_at_once(specs, settings):
    with pytest.raises(ConfigError):
        native(specs, num_blocks=20, **settings)
    native(specs, num_blocks=20, enable_caching=False, **settings)


def test_chunks_next_to_a_window_and_full_attention():
    manager = native([full(4), sliding(4, 8), chunked(4, 8)], num_blocks=60)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(22))
    admit(manager, first)
    rows, hit = manager.get_computed_blocks(prefixes.request("b", range(22)))
    # 21 tokens may hit: 5 blocks; the chunk of token 20 began at 16.
    assert hit == 20
    assert [[bool(b) for b in row] for row in rows] == [
        [True] * 5,
        [False] * 3 + [True] * 2,
        [False] * 4 + [True],
    ]
    admit(manager, prefixes.request("b", range(22)))
    check_integrity(manager)
