"""Golden tests that appendix C suggests and that no section's tests have. The index names the rest.

Source: spec/manager.md, appendix C.
"""

from __future__ import annotations

from sim.core.kv_events import AllBlocksCleared
from tests.helpers import admit, allocate, free_list, full, mamba, sliding
from tests.spec.test_section_7_events import Told
from tests.spec.worlds import num_registered


def test_c6_a_state_made_in_this_step_is_refused_until_the_next():
    """Hit 8, allocation refused; accepted after new_step_starts."""
    told = Told(full(4), mamba(4))
    told.manager.new_step_starts()
    admit(told.manager, told.request("a", range(12)), 8)
    second = told.request("b", [*range(8), *"wxyz"])
    assert admit(told.manager, second) == (8, None)
    told.manager.new_step_starts()
    hit, new = admit(told.manager, second)
    assert hit == 8 and new is not None


def test_c9_life_of_a_partial_entry_with_its_events():
    """Stored, stored, removed, removed, stored, removed, stored; hash block 4, block 16."""
    told = Told(full(16), sliding(4, 8))
    request = told.request("a", range(18))
    names, pool = request.prefix_ids, told.manager.block_pool
    (block_id,) = pool.get_new_blocks(1, 0)
    for num_tokens in (8, 4, 12):
        pool.cache_partial_block("a", block_id, num_tokens, names, 0, 16)
    pool.cache_full_blocks("a", [block_id], 0, 1, names[3::4], 0)
    events = told.take()
    kinds = [type(event).__name__.removeprefix("Block") for event in events]
    assert kinds == ["Stored", "Stored", "Removed", "Removed", "Stored", "Removed", "Stored"]
    eight, four, first, second, twelve, third, whole = (e.block_hashes for e in events)
    assert (first, second, third) == (eight, four, twelve)
    assert events[-1].token_ids == list(range(16))
    assert (events[-1].block_size, events[-1].parent_block_hash) == (16, None)
    assert len({*eight, *four, *twelve, *whole}) == 4


def test_c11_reset_while_used_and_after():
    """False while a block is used; then True, one AllBlocksCleared, and the queue as it was."""
    told = Told(full(4), num_blocks=6)
    request = told.request("a", range(9))
    allocate(told.manager, request, 9)
    told.take()
    assert told.manager.reset_prefix_cache() is False
    told.manager.free(request)
    before = free_list(told.manager)
    assert before == [3, 4, 5, 2, 1]
    assert told.manager.reset_prefix_cache() is True
    assert told.take() == [AllBlocksCleared()]
    assert free_list(told.manager) == before
    assert num_registered(told.manager, 0) == 0
