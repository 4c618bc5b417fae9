"""From blocking blocks to stretches of lost tokens, as each group sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.reasons.causes import EAGLE, RULE, VETOED
from sim.reasons.cuts import Cut, forbidding_group
from sim.reasons.group_view import EXTRA_MISSING, USABLE
from sim.reasons.history import Happening, History
from sim.reasons.stretches import NO_GROUP, Reason, Stretch

Cause = tuple[str, Happening | None]


class Losses:
    """What a lookup lost between its hit and the last boundary up to which content was known.

    history : what happened to content so far
    ids : by group, identities at its block size
    blocking : by group, for each edge, as ``blocking_blocks`` returns it
    cuts : the search, as ``find_cuts`` returns it
    edges : right edges of the pieces that are judged, ascending
    """

    def __init__(
        self,
        history: History,
        ids: Sequence[Sequence[int]],
        blocking: Sequence[Sequence[int]],
        cuts: Sequence[Cut],
        edges: range,
    ):
        self._history, self._ids = history, ids
        self._blocking, self._edges = blocking, edges
        self._deciders = self._find_deciders(cuts)
        self._known: list[dict[int, Cause]] = [{} for _ in ids]

    def _find_deciders(self, cuts: Sequence[Cut]) -> list[int]:
        """Return the group that the lookup failed at, by edge; -1: a rule of the reference."""
        edges, deciders = self._edges, [NO_GROUP] * len(self._edges)
        for cut in cuts:
            first = 0 if cut.after < edges[0] else edges.index(cut.after) + 1
            for place in range(first, edges.index(cut.before) + 1):
                deciders[place] = forbidding_group(cut.entry, self._blocking, place)
        return deciders

    def stretches(self) -> Iterator[Stretch]:
        """Yield the stretches of all groups; a group's own stand from left to right."""
        by_rule = Reason(RULE, True)
        yield from self._runs(NO_GROUP, [None if g >= 0 else by_rule for g in self._deciders])
        for group_id in range(len(self._ids)):
            yield from self._runs(group_id, self._reasons(group_id))

    def _reasons(self, group_id: int) -> list[Reason | None]:
        """Return why the group or another one cannot use each edge; None: nobody forbids it."""
        row, reasons = self._blocking[group_id], []
        # Neighbours are often forbidden by one block.
        before, reason = (NO_GROUP, USABLE, USABLE), None
        for place, decider in enumerate(self._deciders):
            now = (decider, row[place], self._blocking[decider][place])
            if now != before:
                before, reason = now, self._reason(group_id, *now)
            reasons.append(reason)
        return reasons

    def _reason(self, group_id: int, decider: int, own: int, deciding: int) -> Reason | None:
        """Return why a group cannot use an edge, from its blocking block and the decider's."""
        if decider == NO_GROUP:
            return None
        if own == USABLE:
            return Reason(VETOED, False, decider, self._cause(decider, deciding)[0])
        cause, event = self._cause(group_id, own)
        return Reason(cause, decider == group_id, by_request=event.request_id if event else None)

    def _cause(self, group_id: int, block_idx: int) -> Cause:
        """Return why a block is missing and what happened to it."""
        known = self._known[group_id]
        if block_idx not in known:
            if block_idx == EXTRA_MISSING:
                known[block_idx] = (EAGLE, None)
            else:
                known[block_idx] = self._history.loss(group_id, self._ids[group_id][block_idx])
        return known[block_idx]

    def _runs(self, group_id: int, reasons: Sequence[Reason | None]) -> Iterator[Stretch]:
        """Join neighbours that have the same reason."""
        start = 0
        for place in range(1, len(reasons) + 1):
            if place == len(reasons) or reasons[place] != reasons[start]:
                reason = reasons[start]
                if reason is not None:
                    yield self._stretch(group_id, reason, start, place)
                start = place

    def _stretch(self, group_id: int, reason: Reason, start: int, end: int) -> Stretch:
        edges = self._edges
        first, last = edges[start] - edges.step, edges[end - 1]
        if group_id == NO_GROUP or reason.cause == VETOED:
            return Stretch(group_id, reason, first, last)
        blocks = dict.fromkeys(self._blocking[group_id][start:end])
        events = [e for _, e in (self._cause(group_id, b) for b in blocks) if e]
        event = max(events, key=lambda e: e.serial, default=None)
        groups = tuple(sorted({e.group_id for e in events if e.group_id != NO_GROUP}))
        stored = None
        if EXTRA_MISSING not in blocks:
            prefix_id = self._ids[group_id][next(iter(blocks))]
            stored = self._history.stored[group_id].get(prefix_id)
        return Stretch(group_id, reason, first, last, len(blocks), event, groups, stored)
