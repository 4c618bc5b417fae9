"""Decisions that vLLM 0.25.1 made, recorded, are ours too; vLLM need not be installed."""

from __future__ import annotations

import json

import pytest

from tests.differential.golden import DIGITS, recorded, written
from tests.differential.play import our_play
from tests.differential.scheduler_side import SCHEDULER_SNAPSHOT

WORLDS = list(recorded())


@pytest.mark.parametrize(("name", "world", "kept"), WORLDS, ids=[w[0] for w in WORLDS])
def test_ours_are_the_same(name, world, kept):
    num_compared = 0
    # Where the reference made no sense, its record is shorter than ours.
    for record, expected in zip(our_play(world).records(), kept, strict=False):
        asked, answer, seen = json.loads(json.dumps(written(record)))
        assert [asked, answer] == expected[:2]
        assert fields_that_differ(seen, expected[2]) == []
        num_compared += 1
    assert num_compared == len(kept) > 0


def fields_that_differ(ours: str, theirs: str) -> list[str]:
    """Return which fields of a snapshot have other digits."""
    places = range(0, max(len(ours), len(theirs)), DIGITS)
    pairs = [(ours[i : i + DIGITS], theirs[i : i + DIGITS]) for i in places]
    return [SCHEDULER_SNAPSHOT[i] for i, (a, b) in enumerate(pairs) if a != b]


def test_there_are_a_few_dozen_worlds_of_both_levels():
    levels = [world.level for _, world, _ in WORLDS]
    assert min(levels.count("manager"), levels.count("scheduler")) >= 12


def test_a_changed_decision_is_noticed():
    """The same world with another pool does not pass for the recorded one."""
    _name, world, kept = next(w for w in WORLDS if any("admit" in str(row[0]) for row in w[2]))
    world.num_blocks += 1
    ours = [json.loads(json.dumps(written(r))) for r in our_play(world).records()]
    assert ours != kept
