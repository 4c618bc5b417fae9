"""The first difference between our side and vLLM's, and how it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import SimError


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same on both sides.

    what : in words; request_id and group_id where it belongs to one; blocks : ids that it names
    """

    what: str
    ours: Any
    theirs: Any
    request_id: str | None = None
    group_id: int | None = None
    blocks: tuple[int, ...] = ()


class Divergence(SimError):
    """Both sides went apart; the text is the whole account."""


def of_sequences(
    what: str, ours: Sequence[Any], theirs: Sequence[Any], are_blocks: bool = False, **where: Any
) -> Difference | None:
    """Return the first place where two sequences differ, None if they are equal."""
    if ours == theirs:
        return None
    shorter = min(len(ours), len(theirs))
    place = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    pair = [side[place] if place < len(side) else None for side in (ours, theirs)]
    blocks = tuple(b for b in pair if b is not None) if are_blocks else ()
    name = f"{what}, entry {place} (of {len(ours)} and {len(theirs)})"
    return Difference(name, *pair, blocks=blocks, **where)


def of_mappings(
    what: str,
    ours: Mapping[Any, Any],
    theirs: Mapping[Any, Any],
    of_values: Callable[[Any, Any, Any], Difference | None] | None = None,
) -> Difference | None:
    """Return the first key that only one side has or whose values differ.

    of_values : (key, ours, theirs) -> their difference
    """
    if ours == theirs:
        return None
    for key in ours.keys() | theirs.keys() if ours.keys() != theirs.keys() else ours:
        one, other = ours.get(key), theirs.get(key)
        if one == other:
            continue
        found = of_values(key, one, other) if of_values and None not in (one, other) else None
        return found or Difference(f"{what} of {key}", one, other)
    return None


def first_of(differences: Iterable[Difference | None]) -> Difference | None:
    """Return the first that is one; what comes after it is not looked at."""
    return next((difference for difference in differences if difference is not None), None)
