"""What happened to every piece of content: who stored it, who lost it, when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.reasons.causes import EVICTED, MASKED, NEVER_CACHED, NOT_KEPT, RESET

STORED = "stored"


@dataclass(slots=True, eq=False)
class Happening:
    """One call that stored, lost or left out content; shared by all content of the call.

    what : ``stored`` or a cause
    request_id : who stored or left it out; for ``evicted`` who took the block, None by order
    group_id : the group of the content; for ``evicted`` the group that took the block, -1 by order
    num_taken : blocks taken from the pool so far in the run
    """

    serial: int
    what: str
    request_id: str | None
    group_id: int
    step: int
    now_ns: int
    num_taken: int


class History:
    """The last storing and the last loss of each (group, prefix identity), and the clock.

    Memory: two references per group and identity that was ever computed, about 200 bytes, and one
    ``Happening`` per call; it grows with the distinct content of a run, not with its lookups.
    """

    def __init__(self, num_groups: int):
        self.stored: list[dict[int, Happening]] = [{} for _ in range(num_groups)]
        self.lost: list[dict[int, Happening]] = [{} for _ in range(num_groups)]
        self.step = 0
        self.now_ns = 0
        self.num_taken = 0
        self._serial = 0
        self._reset: Happening | None = None

    def happening(self, what: str, request_id: str | None, group_id: int) -> Happening:
        """Return a happening of this moment."""
        self._serial += 1
        return Happening(
            self._serial, what, request_id, group_id, self.step, self.now_ns, self.num_taken
        )

    # -- what is told ------------------------------------------------------------------------
    def store(self, group_id: int, request_id: str, prefix_ids: Sequence[int]) -> None:
        """Content of a group was registered."""
        self.stored[group_id].update(
            dict.fromkeys(prefix_ids, self.happening(STORED, request_id, group_id))
        )

    def leave_out(
        self, group_id: int, request_id: str, prefix_ids: Sequence[int], masked: Sequence[bool]
    ) -> None:
        """Content of a group was computed and not registered."""
        kinds = [self.happening(what, request_id, group_id) for what in (NOT_KEPT, MASKED)]
        lost = self.lost[group_id]
        for prefix_id, is_masked in zip(prefix_ids, masked, strict=True):
            lost[prefix_id] = kinds[bool(is_masked)]

    def evict(self, group_ids: Sequence[int], prefix_ids: Sequence[int]) -> Happening:
        """Content left the index; the caller fills in who took the blocks."""
        event = self.happening(EVICTED, None, -1)
        for group_id, prefix_id in zip(group_ids, prefix_ids, strict=True):
            self.lost[group_id][prefix_id] = event
        return event

    def reset(self) -> None:
        """Everything left the index."""
        self._reset = self.happening(RESET, None, -1)

    # -- what is asked -----------------------------------------------------------------------
    def has_seen(self, group_id: int, prefix_id: int) -> bool:
        """Return whether the group has ever dealt with this content."""
        return prefix_id in self.stored[group_id] or prefix_id in self.lost[group_id]

    def loss(self, group_id: int, prefix_id: int) -> tuple[str, Happening | None]:
        """Return why content that is not in the index is not there, and the happening."""
        stored, lost = self.stored[group_id].get(prefix_id), self.lost[group_id].get(prefix_id)
        if lost is not None and (stored is None or stored.serial < lost.serial):
            return lost.what, lost
        return (NEVER_CACHED, None) if stored is None else (RESET, self._reset)
