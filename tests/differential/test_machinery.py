"""The search itself: worlds are reproducible, a planted difference is found and made small."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from tests.differential.compare import Difference, check
from tests.differential.coverage import FEATURES, UNREACHABLE, count
from tests.differential.draw import SeedDraw
from tests.differential.golden import recorded
from tests.differential.manager_play import Record
from tests.differential.play import our_play
from tests.differential.random_worlds import LEVELS, worlds
from tests.differential.report import gaps, report
from tests.differential.search import Tally, seeds
from tests.differential.shrink import shrink
from tests.differential.world import World


@pytest.mark.parametrize("level", LEVELS)
def test_a_seed_names_a_world(level):
    first, again, other = (LEVELS[level](SeedDraw(seed)) for seed in (7, 7, 8))
    assert first == again != other
    assert World.loads(first.dumps()) == first


@pytest.mark.parametrize("level", LEVELS)
def test_hypothesis_makes_the_same_kind_of_worlds(level):
    @settings(max_examples=10, deadline=None)
    @given(worlds(level))
    def make(world):
        assert World.loads(world.dumps()) == world
        for record in our_play(world).records():
            assert record.asked

    make()


def test_parts_of_a_search_share_no_seed():
    parts = [seeds(3, part, 2) for part in (0, 1)]
    drawn = [{next(part) for _ in range(50)} for part in parts]
    assert not drawn[0] & drawn[1]
    assert next(seeds(4, 0, 2)) not in drawn[0] | drawn[1]


def test_what_differs_is_told():
    seen = tuple(range(9))
    record = Record(("free", "r0"), None, seen)
    other = Record(("free", "r0"), None, (*seen[:1], 5, *seen[2:]))
    check(0, record, record)
    with pytest.raises(Difference, match=r"call 3: .*\n  reference counts differs"):
        check(3, record, other)
    with pytest.raises(Difference, match="the answer differs"):
        check(0, record, record._replace(answer=True))
    with pytest.raises(Difference, match="the end of the world"):
        check(0, record, None)
    with pytest.raises(Difference, match="the answer differs"):
        check(0, record, Record(record.asked, ("error", "ValueError", "no"), None))


def test_a_failing_world_is_made_small():
    """What fails is a reset after an eviction: two operations are enough, wherever they stand."""
    rng = random.Random(1)
    world = LEVELS["manager"](SeedDraw(11))
    verbs = ["admit", "go_on", "evict", "free", "reset", "look_up"]
    world.ops = [[rng.choice(verbs), 1] for _ in range(40)]

    def fails(world):
        names = [op[0] for op in world.ops]
        return "evict" in names and "reset" in names[names.index("evict") :]

    smaller = shrink(world, fails)
    assert sorted(op[0] for op in smaller.ops) == ["evict", "reset"]
    assert all(number == 0 for op in smaller.ops for number in op[1:])


def test_a_mended_defect_is_a_difference():
    """Worlds on which vLLM shows Q1: with the defect mended, ours decides something else."""
    changed = 0
    for _, world, _ in recorded():
        if "mamba" in world.kinds and world.enable_caching:
            as_is = list(our_play(world).records())
            mended = list(our_play(world, frozenset(["Q1"])).records())
            changed += [r[:2] for r in as_is] != [r[:2] for r in mended]
    assert changed > 0


def test_recorded_worlds_reach_all_that_can_be_seen_from_outside():
    """Nothing is counted under a name that the table lacks, and few names stay at zero."""
    tally = Tally()
    for _, world, _ in recorded():
        count(world, list(our_play(world).records()), tally.features)
    known = (*FEATURES, "call: come")
    assert [f for f in tally.features if f not in known and not f.startswith("error: ")] == []
    # What is seen from inside only, and what has the name of the reference's error.
    inside = ("quirk ", "refused: ", "scheduler: ", "error: ", "given up: ")
    assert [f for f in gaps(tally) if not f.startswith(inside)] == []


def test_the_report_names_gaps_and_totals():
    tally = Tally()
    tally.worlds["manager"] = 2
    text = report(tally, seed=9, wall_s=1.0)
    assert "seed 9: 2 worlds (2 of managers, 0 of schedulers)" in text
    assert "never reached: kind: full; " in text
    assert all(feature in text for feature in UNREACHABLE)
