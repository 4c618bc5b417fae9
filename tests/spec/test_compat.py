"""``compat``: the reference's defects, and what each mend changes. Source: spec/manager.md A, D.2.

Every test shows the wrong behaviour of vLLM 0.25.1 and the right one with that one defect mended.
vLLM's own scheduler, asked with the same calls for Q7 and Q13, does what ``AS_IS`` shows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.compat import QUIRKS, fixes_of
from sim.config import Scenario, validated
from sim.core.integrity import check_integrity
from sim.errors import ConfigError
from sim.simulation import assemble, build_manager
from tests.helpers import Prefixes, admit, allocate, full, mamba, put_in_cache, sliding
from tests.spec.serving import Serving
from tests.spec.worlds import chunked, group, manager_of, sink

NAMES = list(range(20))
AS_IS = frozenset()


def only(name):
    return fixes_of({"fix": [name]})


# -- the switch ---------------------------------------------------------------------------------
def test_every_defect_that_the_issue_names_has_a_switch():
    assert set(QUIRKS) == {"Q1", "Q2", "Q3", "Q4", "Q7", "Q8", "Q13"}
    assert fixes_of("vllm-0.25.1") == AS_IS
    assert fixes_of("fixed") == set(QUIRKS)
    assert fixes_of({"fix": ["Q3", "Q1"]}) == {"Q1", "Q3"}


@pytest.mark.parametrize("value", ["Q5", "fix", {"fix": ["Q6"]}])
def test_an_unknown_defect_is_refused(value):
    """Q5, Q6 and the rest are replicated or are errors here: there is nothing to mend."""
    with pytest.raises(ConfigError):
        fixes_of(value)


@pytest.mark.parametrize("compat", ["vllm-0.25.1", "fixed", {"fix": ["Q8"]}])
def test_a_scenario_says_what_is_mended(compat):
    given = {"model": "meta-llama--Llama-3.1-8B", "compat": compat}
    given["cache"] = {"kv_cache_memory_bytes": "17GiB"}
    manager = build_manager(assemble(validated(Scenario, given)))
    assert set(group(manager).fixes) == fixes_of(compat)


# -- Q1 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fixes", "hit", "rows"), [(AS_IS, 64, [3, 4]), (only("Q1"), 32, [2, 2])])
def test_q1_a_hit_exceeds_the_full_attention_rows(fixes, hit, rows):
    """Full [1, 2, 3] after its drop, states at 32 and 64 tokens: 64 was reported, 32 is sound.

    With 64 the request's fourth attention block is a fresh one, which nothing has filled.
    """
    manager = manager_of(full(16), mamba(16), use_eagle=True, fixes=fixes)
    put_in_cache(manager, 0, NAMES[:4])
    put_in_cache(manager, 1, [1, 3])
    found, length = manager.coordinator.find_longest_cache_hit(NAMES, 79)
    assert (length, [len(row) for row in found]) == (hit, rows)
    assert all(found[0])


# -- Q2 -----------------------------------------------------------------------------------------
def test_q2_attention_with_sinks_starts_only_if_mended():
    with pytest.raises(ConfigError, match="Q2"):
        manager_of(sink(4, 8), fixes=AS_IS)
    manager = manager_of(sink(4, 8), num_blocks=10, fixes=only("Q2"))
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(9))
    assert admit(manager, first) == (0, ([3, 4, 5],))
    assert admit(manager, prefixes.request("b", range(9))) == (8, ([6],))
    check_integrity(manager)


# -- Q3 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fixes", "rows"), [(AS_IS, [4, 8, 4]), (only("Q3"), [4, 4, 4])])
def test_q3_the_second_full_attention_entry_keeps_too_many_rows(fixes, rows):
    """A hit of 64 with 8 rows of 16: the request would rewrite four shared blocks."""
    wider = replace(full(16), head_size=16, head_size_v=16)
    manager = manager_of(full(16), wider, sliding(16, 20), fixes=fixes)
    put_in_cache(manager, 0, NAMES[:8])
    put_in_cache(manager, 1, NAMES[:8])
    put_in_cache(manager, 2, [2, 3])
    found, length = manager.coordinator.find_longest_cache_hit(NAMES, 128)
    assert length == 64
    assert [len(row) for row in found] == rows


def test_q3_mended_a_request_gets_fresh_blocks_behind_its_hit():
    """D.4: what the reference does with the longer table is not asked of ours."""
    wider = replace(full(16), head_size=16, head_size_v=16)
    specs = [full(16), wider, sliding(16, 20)]
    shared = []
    for fixes in (AS_IS, only("Q3")):
        manager = manager_of(*specs, fixes=fixes)
        prefixes = Prefixes(16)
        first = prefixes.request("a", range(129))
        admit(manager, first)
        window = manager.get_block_ids("a")[2]
        manager.evict_blocks({b for b in window[4:] if b})
        second = prefixes.request("b", range(129))
        hit, new = admit(manager, second)
        assert hit == 64 and new is not None
        tables = [manager.get_block_ids(name)[1] for name in "ab"]
        shared.append(sum(x == y for x, y in zip(*tables, strict=True)))
        assert len(tables[1]) == 9
    assert shared == [8, 4]


def test_q3_external_tokens_behind_a_longer_table_take_no_block():
    """D.4: 64 hit and 16 external tokens need 5 rows of 8; the reference counts -3 new blocks."""
    wider = replace(full(16), head_size=16, head_size_v=16)
    manager = manager_of(full(16), wider, sliding(16, 20))
    prefixes = Prefixes(16)
    admit(manager, prefixes.request("a", range(129)))
    manager.evict_blocks({b for b in manager.get_block_ids("a")[2][4:] if b})
    second = prefixes.request("b", range(129))
    rows, hit = manager.get_computed_blocks(second)
    assert (hit, [len(row) for row in rows]) == (64, [4, 8, 4])
    new = manager.allocate_slots(second, 16, hit, rows, num_external_computed_tokens=16)
    assert [len(row) for row in manager.get_block_ids("b")] == [6, 8, 6]
    assert [len(row) for row in new] == [1, 0, 1]
    check_integrity(manager)


# -- Q4 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fixes", "hit"), [(AS_IS, 0), (only("Q4"), 16)])
def test_q4_a_short_prefix_loses_a_whole_segment(fixes, hit):
    """w = 41, blocks of 4, alignment 16, {0..4} cached: 16 is sound."""
    manager = manager_of(sliding(4, 41), fixes=fixes)
    blocks = put_in_cache(manager, 0, NAMES[:5])
    (row,) = group(manager).find_longest_cache_hit(NAMES[:8], 32, [0], True, 16)
    assert len(row) * 4 == hit
    assert list(row) == [blocks[i] for i in range(hit // 4)]


@pytest.mark.parametrize(("fixes", "hit"), [(AS_IS, 0), (only("Q4"), 16)])
def test_q4_in_a_hybrid(fixes, hit):
    """24 tokens, full at 16 and an EAGLE window at 4: 16 aligned tokens and one block more."""
    manager = manager_of(full(16), sliding(4, 41), eagle_groups=[1], fixes=fixes)
    prefixes = Prefixes(4)
    admit(manager, prefixes.request("a", range(24)))
    assert group(manager, 1).num_cached_block["a"] == 5
    assert manager.get_computed_blocks(prefixes.request("b", range(24)))[1] == hit


@pytest.mark.parametrize("cached", [range(5), range(4), range(9), [1, 2, 3, 4], []])
def test_q4_mended_never_gives_more_than_is_cached(cached):
    """The block behind the hit, which EAGLE reads again, must be cached as well."""
    manager = manager_of(sliding(4, 41), fixes=only("Q4"))
    blocks = put_in_cache(manager, 0, cached)
    (row,) = group(manager).find_longest_cache_hit(NAMES[:12], 48, [0], True, 16)
    length = len(row)
    assert list(row) == [blocks[i] for i in range(length)]
    assert length % 4 == 0
    assert not length or length in blocks


# -- Q7 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fixes", "scheduled"),
    [(AS_IS, {"a": 1, "c": 1}), (only("Q7"), {"a": 1, "b": 1, "c": 1})],
)
def test_q7_a_skipped_victim_makes_the_loop_pass_over_a_request(fixes, scheduled):
    """v, the least urgent, is a prefill held back in this step, and precedes the others.

    Six blocks of 4: v has three of its 40 tokens, a, b and c one each. a needs a fifth token's
    block, v is preempted from place 0, and the loop's index no longer points at b.
    """
    serving = Serving(
        num_blocks=7,
        policy="priority",
        scheduler_reserve_full_isl=False,
        long_prefill_token_threshold=4,
        fixes=fixes,
    )
    serving.add("v", 40, priority=9)
    assert serving.steps(2) == [{"v": 4}, {"v": 4}]
    for name, priority in (("a", 0), ("b", 1), ("c", 2)):
        serving.add(name, 4, priority=priority)
    assert serving.steps(1) == [{"v": 4, "a": 4, "b": 4, "c": 4}]
    output = serving.step(throttle_prefills=True)
    assert [r.request_id for r in output.preempted] == ["v"]
    assert output.num_scheduled_tokens == scheduled
    assert serving.step().num_scheduled_tokens == {"a": 1, "b": 1, "c": 1}


# -- Q8 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fixes", "hit"), [(AS_IS, 24), (only("Q8"), 0)])
def test_q8_whole_chunks_are_hit_in_an_empty_cache(fixes, hit):
    """c = 8, 30 tokens: the lookup goes to 29, whose chunk begins at 24."""
    manager = manager_of(chunked(4, 8), fixes=fixes)
    rows, length = manager.get_computed_blocks(Prefixes(4).request("a", range(30)))
    assert length == hit
    assert list(rows[0]) == [0] * (hit // 4)


@pytest.mark.parametrize("fixes", [AS_IS, only("Q8")])
def test_q8_mended_or_not_what_was_computed_is_hit(fixes):
    manager = manager_of(chunked(4, 8), fixes=fixes)
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(30))
    allocate(manager, first, 30)
    rows, hit = manager.get_computed_blocks(prefixes.request("b", range(30)))
    assert hit == 28
    assert list(rows[0]) == [0] * 6 + [manager.get_block_ids("a")[0][6]]


def test_q8_mended_a_hit_ends_with_a_cached_block():
    """The first chunk is cached, the second and third are not: 8 of 29 tokens."""
    manager = manager_of(chunked(4, 8), fixes=only("Q8"))
    prefixes = Prefixes(4)
    allocate(manager, prefixes.request("a", range(9)), 9)
    assert manager.get_computed_blocks(prefixes.request("b", range(30)))[1] == 8


# -- Q13 ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fixes", "chunk"), [(AS_IS, 8), (only("Q13"), 16)])
def test_q13_a_request_inherits_the_hint_of_the_lookup_before_it(fixes, chunk):
    """b is cut at 8 tokens that full attention knows to be shared; c, which reads nothing, too."""
    serving = Serving(full(4), mamba(4), fixes=fixes)
    serving.add("a", 18, shared=8)
    assert serving.steps(2) == [{"a": 16}, {"a": 2}]
    serving.add("b", 18, shared=8)
    assert serving.steps(1) == [{"a": 1, "b": 8}]
    serving.add("c", 18, skip_reading_prefix_cache=True)
    assert serving.steps(1) == [{"a": 1, "b": 8, "c": chunk}]
