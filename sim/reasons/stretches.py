"""Stretches of lost tokens: one reason each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sim.reasons.causes import LAST_TOKEN, NEW, UNALIGNED
from sim.reasons.history import Happening

NO_GROUP = -1


class Reason(NamedTuple):
    """Why a group could not use an edge.

    decides : whether the lookup itself failed at this; such stretches partition the loss
    by_group, by_cause : for ``vetoed``, the group that could not use it and why
    by_request : who took, or left out, what the group would have needed
    """

    cause: str
    decides: bool
    by_group: int = NO_GROUP
    by_cause: str | None = None
    by_request: str | None = None


class Stretch(NamedTuple):
    """Tokens [first, end) that a lookup lost, as one group sees it; neighbours differ in reason.

    group_id : -1 where the reason is the same for every group
    blocks : how many of the group's blocks forbid a hit there
    event, event_groups : the last thing that happened to one of them, and for which groups their
        blocks were taken
    stored : when the first of them was stored last
    """

    group_id: int
    reason: Reason
    first: int
    end: int
    blocks: int = 0
    event: Happening | None = None
    event_groups: tuple[int, ...] = ()
    stored: Happening | None = None


def beyond(limit: int, seen: int, max_length: int) -> Iterator[Stretch]:
    """Yield what lies behind the last boundary up to which content had been seen.

    limit : that boundary; seen : tokens seen before; max_length : all but the last token
    """
    bounds = [limit, min(max(seen, limit), max_length), max_length, max_length + 1]
    for cause, first, end in zip((UNALIGNED, NEW, LAST_TOKEN), bounds, bounds[1:], strict=False):
        if first < end:
            yield Stretch(NO_GROUP, Reason(cause, True), first, end)
