"""The fixed point again, with a protocol: which group lowered the bound from where to where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.reasons.group_view import USABLE


class Entry(NamedTuple):
    """Groups that are looked up together (equal specs), in the order of the search."""

    group_ids: tuple[int, ...]


class Cut(NamedTuple):
    """Groups that are looked up together lowered the bound from ``before`` to ``after`` tokens.

    group_id is the first of them that forbids ``before``.
    """

    entry: Entry
    group_id: int
    before: int
    after: int


def find_cuts(
    entries: Sequence[Entry], blocking: Sequence[Sequence[int]], edges: range, hit: int
) -> list[Cut]:
    """Return the cuts from the last edge down to ``hit``, in their order.

    edges : possible hits that are longer than the hit, ascending
    blocking : by group, for each edge, as ``blocking_blocks`` returns it
    Source: spec/manager.md 4.4. Asking full attention again, as here, changes nothing: what it
    can use is prefix-closed.
    """
    reach = [_reach(entry, blocking, len(edges)) for entry in entries]
    cuts: list[Cut] = []
    place = len(edges) - 1
    while place >= 0:
        before = place
        for entry, usable in zip(entries, reach, strict=True):
            found = usable[place] if place >= 0 else -1
            if found < place:
                length = edges[found] if found >= 0 else hit
                culprit = forbidding_group(entry, blocking, place)
                cuts.append(Cut(entry, culprit, edges[place], length))
                place = found
        if place == before:
            break
    return cuts


def _reach(entry: Entry, blocking: Sequence[Sequence[int]], count: int) -> list[int]:
    """For each edge, the last one up to it that all groups of the entry can use; -1: none."""
    reach, last = [], -1
    for place in range(count):
        if all(blocking[g][place] == USABLE for g in entry.group_ids):
            last = place
        reach.append(last)
    return reach


def forbidding_group(entry: Entry, blocking: Sequence[Sequence[int]], place: int) -> int:
    """Return the first group of an entry that forbids an edge; some group must."""
    return next(g for g in entry.group_ids if blocking[g][place] != USABLE)
