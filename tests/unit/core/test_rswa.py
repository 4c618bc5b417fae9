"""Reference windows. Source: spec/manager.md 3.7."""

from __future__ import annotations

from sim.core.integrity import check_integrity
from tests.helpers import Prefixes, admit, allocate, full, num_held, put_in_cache, tables
from tests.unit.core.kinds import held_while_decoding, native, rswa


def nulls(manager, request):
    return [i for i, block in enumerate(tables(manager, request)[0]) if not block]


def test_the_gap_behind_the_prompt_opens():
    """Blocks of 4, window 8, prompt 18: cdiv(18, 4) = 5 is the first entry that may go."""
    manager = native([rswa(4, 8)], num_blocks=40)
    request = Prefixes(4).request("a", range(18), max_tokens=40)
    allocate(manager, request, 18)
    cleared = {}
    for computed, held in held_while_decoding(manager, request, 46):
        cleared[computed] = nulls(manager, request)
        need = manager.coordinator.num_blocks_held(computed, num_prompt_tokens=18)
        assert need == held
    assert cleared[31] == []
    assert cleared[32] == cleared[35] == [5]
    assert cleared[36] == [5, 6]
    assert cleared[43] == [5, 6, 7]


def test_what_the_window_left_behind_is_hit_until_it_is_evicted():
    manager = native([rswa(4, 8)], num_blocks=40)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(18), max_tokens=40)
    allocate(manager, request, 18)
    list(held_while_decoding(manager, request, 46))
    outputs = [("a", i) for i in range(28)]
    again = prefixes.request("b", [*range(18), *outputs])
    # 45 of 46 tokens may hit: 11 blocks of 4.
    assert admit(manager, again)[0] == 44
    assert num_held(manager, again) == 12
    check_integrity(manager)


def test_without_the_prompts_length_nothing_goes():
    manager = native([rswa(4, 8)], num_blocks=40)
    request = Prefixes(4).request("a", range(4), max_tokens=40)
    allocate(manager, request, 4)
    request.num_tokens = 44
    allocate(manager, request, 40)
    manager.remove_skipped_blocks("a", 44)
    assert nulls(manager, request) == []
    manager.remove_skipped_blocks("a", 44, 4)
    assert nulls(manager, request) == list(range(1, 9))


def test_it_is_a_full_attention_group():
    """It comes first and is looked up once: its hit holds for every shorter one."""
    manager = native([rswa(4, 8), full(4)], num_blocks=40)
    put_in_cache(manager, 0, range(6))
    put_in_cache(manager, 1, range(4))
    rows, length = manager.coordinator.find_longest_cache_hit(list(range(8)), 31)
    assert length == 16
    assert [len(row) for row in rows] == [4, 4]
