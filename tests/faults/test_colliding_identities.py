"""Two different contents under one identity: what happens, and what finds it.

The cache trusts identities, as the engine trusts its hashes: the second request gets the first
one's blocks, and the state of the pool is as consistent as ever. So a recount of the pool cannot
find it. PrefixIds can: an identity is handed out once. So can whoever compares tokens.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sim.core.integrity import check_integrity
from sim.core.kv_cache_manager import KVCacheManager
from sim.prefix_ids import PrefixIds
from sim.request import Request, Span
from sim.token_ids import token_ids
from tests.faults.live import Live
from tests.helpers import admit, full, make_kv_cache_config

ONE = (Span("one", 0, 13),)
OTHER = (Span("other", 0, 13),)


def damaged() -> PrefixIds:
    """Names in which the second block of OTHER collides with that of ONE."""
    names = PrefixIds(4)
    names.of_spans(ONE)
    names.of_spans(OTHER)
    other = nodes(names)[1]
    assert other.runs == [(3, 6)]
    other.runs = [(3, 4), (1, 2), (5, 6)]
    return names


def nodes(names: PrefixIds) -> list[Any]:
    """The nodes below the one root, in the order in which they were made."""
    (root,) = names._roots.values()
    return [*root.children.values()]


def test_a_collision_is_a_wrong_hit_that_the_recount_of_the_pool_cannot_see():
    names = damaged()
    one, other = (
        Request(name, 13, 1, names.of_spans(spans).tolist())
        for name, spans in (("one", ONE), ("other", OTHER))
    )
    manager = KVCacheManager(make_kv_cache_config([full(4)], num_blocks=20), 64, 4, 4)
    admit(manager, one)
    # The first blocks differ, so the lookup ends before it meets the colliding second one ...
    assert manager.get_computed_blocks(other) == (([],), 0)
    # ... but a collision in the first block is a hit on somebody else's content.
    worse = Request("worse", 13, 1, [one.prefix_ids[0], *other.prefix_ids[1:]])
    assert manager.get_computed_blocks(worse) == (([1, 2],), 8)
    check_integrity(manager)


def test_names_find_a_collision_themselves():
    assert damaged().collisions() == [1, 4]  # 1 is given twice, 4 to nobody


def test_names_find_an_identity_that_was_never_given():
    names = PrefixIds(4)
    names.of_spans(ONE)
    nodes(names)[0].runs = [(0, 2), (99, 100)]
    assert names.collisions() == [2, 99]


def test_names_of_a_whole_run_do_not_collide():
    live = Live(30).run(60)
    assert len(live.names) > 200
    assert live.names.collisions() == []
    assert PrefixIds(4).collisions() == []


def test_comparing_tokens_finds_a_collision():
    """What an outsider can do who gets events with tokens: one identity, two contents."""
    names = damaged()
    contents: dict[int, list[int]] = {}
    found = []
    for spans in (ONE, OTHER):
        for block, name in enumerate(names.of_spans(spans).tolist(), 1):
            tokens = token_ids(spans, 0, block * 4)
            if contents.setdefault(name, tokens) != tokens:
                found.append(name)
    assert found == [1]


SPANS = st.lists(
    st.builds(Span, st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 7)), max_size=7
)


@given(sequences=st.lists(st.tuples(SPANS, st.sampled_from([None, "s"])), max_size=5))
def test_names_never_collide_by_themselves(sequences):
    names = PrefixIds(2)
    for spans, salt in sequences:
        names.of_spans(spans, salt)
    assert names.collisions() == []
