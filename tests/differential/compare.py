"""Plays one world on both sides, call by call, and stops at the first difference."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.differential.manager_play import Record
from tests.differential.play import our_play, their_play
from tests.differential.scheduler_side import SCHEDULER_SNAPSHOT
from tests.differential.world import World


@dataclass
class Difference(Exception):
    """Where the two sides part: the call, what of it, and both answers."""

    call: int
    asked: Any
    what: str
    ours: Any
    theirs: Any
    sides: tuple[str, str] = ("ours", "theirs")

    def __str__(self) -> str:
        mine, other = (f"{side + ':':8}" for side in self.sides)
        return (
            f"call {self.call}: {self.asked}\n  {self.what} differs\n"
            f"  {mine}{self.ours}\n  {other}{self.theirs}"
        )


def compare(world: World) -> list[Record]:
    """Return the reference's records of all calls; raise the first Difference."""
    records = []
    both = zip_longest(our_play(world).records(), their_play(world).records())
    for number, (mine, other) in enumerate(both):
        if mine != other:
            if is_nonsense(other):
                return [*records, other]
            check(number, mine, other)
        records.append(other)
    return records


def check(
    number: int,
    mine: Record | None,
    other: Record | None,
    names: tuple[str, ...] = SCHEDULER_SNAPSHOT,
) -> None:
    """Raise the Difference between two records, if there is one; names : of what is seen."""
    if mine is None or other is None:
        raise Difference(number, (mine or other).asked, "the end of the world", mine, other)
    if mine == other or (is_error(mine) and is_error(other) and is_foreseen(other)):
        return
    if mine.asked != other.asked:
        raise Difference(number, other.asked, "what is asked", mine.asked, other.asked)
    if mine.answer != other.answer:
        raise Difference(number, other.asked, "the answer", mine.answer, other.answer)
    for name, a, b in zip(names, mine.seen, other.seen, strict=False):
        if a != b:
            raise Difference(number, other.asked, name, a, b)


# (call, the reference's error) -> where it is foreseen; ours is an error there too
FORESEEN = {
    (
        "admit",
        "ValueError",
    ): "D.5: with external tokens a Mamba align group predicts too few blocks",
    (
        "go on",
        "ValueError",
    ): "D.5: the same, when a request with external tokens goes on",
    (
        "schedule",
        "RuntimeError",
    ): "one that ended by an output in flight is still among those passed over",
    ("update", "AssertionError"): "6.10: a reset makes asynchronous placeholders negative",
    ("build", "ValueError"): "4.1: a retention interval that does not fit",
    ("build", "AssertionError"): "4.1, 4.3, 4.4: block sizes that do not divide, one spec only",
    ("build", "TypeError"): "Q2: the sink manager",
}


def is_foreseen(theirs: Record) -> bool:
    return (theirs.asked[0], theirs.answer[1]) in FORESEEN


def is_nonsense(record: Record | None) -> bool:
    return record is not None and record.seen is None and record.answer[0] == "nonsense"


def is_error(record: Record) -> bool:
    return isinstance(record.answer, tuple) and record.answer[:1] == ("error",)
