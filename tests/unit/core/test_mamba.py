"""Recurrent state. Source: spec/manager.md 3.5, appendix C 4 and 6."""

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
    mamba,
    mask_text,
    put_in_cache,
)
from tests.helpers import tables as tables_of


def hybrid(implementation, num_speculative_blocks=0, num_blocks=40):
    specs = [full(4), mamba(4, "align", num_speculative_blocks)]
    return make_manager(implementation, specs, num_blocks=num_blocks)


def state_table(manager, request):
    return tables_of(manager, request)[1]


def test_align_tables_without_speculation(implementation):
    manager = hybrid(implementation)
    prefixes = Prefixes(4)
    request = prefixes.request("r", range(18))
    allocate(manager, request, 8)
    assert tables_of(manager, request) == [[1, 2], [0, 3]]
    allocate(manager, request, 8)
    assert tables_of(manager, request) == [[1, 2, 4, 5], [0, 3, 0, 6]]
    allocate(manager, request, 2)
    assert tables_of(manager, request) == [[1, 2, 4, 5, 7], [0, 0, 0, 6, 8]]
    decode(manager, request)
    assert state_table(manager, request) == [0, 0, 0, 0, 8]
    assert manager.block_pool.get_cached_block(request.prefix_ids[3], [1]) == [6]
    decode(manager, request)
    assert state_table(manager, request) == [0, 0, 0, 0, 8]
    assert decode(manager, request) == ([9], [10])
    assert state_table(manager, request) == [0, 0, 0, 0, 8, 10]
    decode(manager, request)
    assert state_table(manager, request) == [0, 0, 0, 0, 0, 10]

    manager.free(request)
    assert free_list(manager)[:3] == [10, 9, 11]
    manager.new_step_starts()
    longer = prefixes.request("s", [*range(18), *"abcdefghij"])
    assert manager.get_computed_blocks(longer) == (([1, 2, 4, 5], [0, 0, 0, 6]), 16)
    assert admit(manager, longer, 4) == (16, ([10], [9]))
    assert state_table(manager, longer) == [0, 0, 0, 6, 9]
    allocate(manager, longer, 8)
    assert state_table(manager, longer)[:4] == [0, 0, 0, 0]
    assert manager.block_pool.ref_cnt[6] == 0


def test_align_tables_with_two_speculative_blocks(implementation):
    manager = hybrid(implementation, num_speculative_blocks=2)
    request = Prefixes(4).request("r", range(16))
    assert allocate(manager, request, 8) == ([1, 2], [0, 3, 4, 5])
    # The slot of the first speculative block, 2, is behind the new state's, 3: block 4 moves.
    assert allocate(manager, request, 8) == ([6, 7], [4, 8])
    assert state_table(manager, request) == [0, 3, 0, 5, 4, 8]
    request.num_tokens += 1
    allocate(manager, request, 3)
    assert state_table(manager, request) == [0, 0, 0, 5, 4, 8, 10]
    manager.free(request)
    assert tables_of(manager, request) == [[], []]
    assert manager.block_pool.get_num_free_blocks() == 39


def test_align_tables_with_two_speculative_blocks_and_the_documented_ids(implementation):
    """[-,4,5,6], then [-,4,-,6,5,9] with [5,9] returned, then [-,-,-,6,5,9,11]."""
    manager = hybrid(implementation, num_speculative_blocks=2)
    manager.block_pool.get_new_blocks(1, 0)  # block 1 is somebody else's
    request = Prefixes(4).request("r", range(16))
    allocate(manager, request, 8)
    assert state_table(manager, request) == [0, 4, 5, 6]
    new = allocate(manager, request, 8)
    assert list(new[1]) == [5, 9]
    assert state_table(manager, request) == [0, 4, 0, 6, 5, 9]
    request.num_tokens += 1
    allocate(manager, request, 3)
    assert state_table(manager, request) == [0, 0, 0, 6, 5, 9, 11]


def test_a_state_made_in_this_step_is_refused(implementation):
    manager = hybrid(implementation)
    prefixes = Prefixes(4)
    manager.new_step_starts()
    admit(manager, prefixes.request("a", range(12)), 8)
    second = prefixes.request("b", [*range(8), *"wxyz"])
    before = free_list(manager)
    assert admit(manager, second) == (8, None)
    assert free_list(manager) == before
    manager.new_step_starts()
    hit, new = admit(manager, second)
    assert hit == 8 and new is not None
    assert state_table(manager, second)[:2] == [0, 3]


def test_the_refusal_compares_content_not_blocks(implementation):
    """A block cached earlier is refused if a duplicate of it was registered in this step."""
    manager = hybrid(implementation)
    prefixes = Prefixes(4)
    manager.new_step_starts()
    admit(manager, prefixes.request("a", range(12)), 8)
    manager.new_step_starts()
    copy = prefixes.request("b", range(12))
    copy.skip_reading_prefix_cache = True
    admit(manager, copy, 8)
    assert admit(manager, prefixes.request("c", range(12))) == (8, None)
    manager.new_step_starts()
    hit, new = admit(manager, prefixes.request("d", range(12)))
    assert hit == 8 and new is not None


@pytest.mark.parametrize(
    ("retention", "kept"), [(None, range(16)), (0, [11]), (16, [3, 7, 11, 15]), (4, range(16))]
)
def test_masks(implementation, retention, kept):
    group = hybrid(implementation).coordinator.single_type_managers[1]
    mask = group.reachable_block_mask(0, 16, 4, retention, 50)
    assert [i for i, c in enumerate(mask_text(mask, 16)) if c == "X"] == list(kept)
    part = group.reachable_block_mask(5, 12, 4, retention, 50)
    assert [i + 5 for i, c in enumerate(mask_text(part, 7)) if c == "X"] == [
        i for i in kept if 5 <= i < 12
    ]


def test_the_last_aligned_state_wins(implementation):
    manager = hybrid(implementation)
    group = manager.coordinator.single_type_managers[1]
    blocks = put_in_cache(manager, 1, [1, 4])
    lookup = group.find_longest_cache_hit
    names = list(range(8))
    assert list(lookup(names, 32, [1], False, 4)[0]) == [0, 0, 0, 0, blocks[4]]
    assert list(lookup(names, 19, [1], False, 4)[0]) == [0, blocks[1]]
    assert list(lookup(names, 32, [1], False, 8)[0]) == [0, blocks[1]]  # 20 is not aligned, 8 is
    assert list(lookup(names, 32, [1], True, 4)[0]) == [0, 0, 0, 0, blocks[4]]  # no eagle drop
    assert list(lookup(names, 7, [1], False, 4)[0]) == []


@pytest.mark.parametrize(("computed", "skipped"), [(1, 0), (16, 15)])
def test_only_the_state_after_the_last_token_matters(implementation, computed, skipped):
    group = hybrid(implementation).coordinator.single_type_managers[1]
    assert group.get_num_skipped_tokens(computed) == skipped


@pytest.mark.parametrize("num_speculative_blocks", [0, 2])
def test_mode_none_holds_one_state_and_the_speculative_blocks(
    implementation, num_speculative_blocks
):
    specs = [full(16), mamba(64, "none", num_speculative_blocks)]
    manager = make_manager(
        implementation, specs, num_blocks=20, max_model_len=64, enable_caching=False
    )
    request = Prefixes(16).request("r", range(40))
    states = []
    for num_tokens in (20, 20):
        allocate(manager, request, num_tokens)
        states.append(state_table(manager, request))
    decode(manager, request)
    states.append(state_table(manager, request))
    # 20 tokens take the full group's blocks 1 and 2 first.
    assert states == [list(range(3, 4 + num_speculative_blocks))] * 3


def test_admission_of_a_hybrid_needs_one_state(implementation):
    """18 tokens: 5 full blocks and 1 state, although 16 + 2 tokens are two chunks."""
    for num_usable, admitted in ((6, True), (5, False)):
        manager = hybrid(implementation, num_blocks=num_usable + 1)
        request = Prefixes(4).request("r", range(18))
        new = manager.allocate_slots(request, 16, full_sequence_must_fit=True)
        assert (new is not None) is admitted
