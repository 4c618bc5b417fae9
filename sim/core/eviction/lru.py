"""Free blocks as vLLM keeps them: blocks without content first, then the oldest cached ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.errors import InvariantError

_TOMBSTONE = 0  # the null block is never free
_SLACK = 16384


class FreeKVCacheBlockQueue:
    """The free blocks in the order in which they are handed out.

    A stack (its end is the head of the queue) stands before a list that only grows at its end.
    Blocks that enter at the front lie on the stack; blocks that enter at the back, which are the
    cached ones and so the only ones that a hit pulls out, leave a tombstone in the list.

    Invariants: ``get_all_free_blocks()`` names ``num_free_blocks`` distinct ids.
    Cost: O(1) per block, amortised over the compaction of tombstones.
    Source: spec/manager.md 1.2 (vLLM 0.25.1 ``FreeKVCacheBlockQueue``).
    Deviation: another data structure, the same order; members are ids.
    """

    __slots__ = ("_back", "_base", "_front", "_head", "_live", "_position", "num_free_blocks")

    def __init__(self, block_ids: Iterable[int], num_blocks: int):
        self._front = list(block_ids)[::-1]
        self._back: list[int] = []
        self._head = 0  # index in _back of the first entry not yet handed out
        self._base = 0  # position that the first entry of _back stands for
        self._live = 0  # members of _back
        self._position = [0] * num_blocks
        self.num_free_blocks = len(self._front)

    def popleft_n(self, n: int) -> list[int]:
        """Take the first ``n`` blocks; the caller has checked that there are so many.

        Raises ValueError for a negative count or one above ``num_free_blocks``.
        """
        if not 0 <= n <= self.num_free_blocks:
            raise ValueError(f"cannot take {n} blocks from a queue of {self.num_free_blocks}")
        front = self._front
        self.num_free_blocks -= n
        if n == 1 and front:
            return [front.pop()]
        cut = max(len(front) - n, 0)
        taken = front[cut:]
        taken.reverse()
        del front[cut:]
        return taken + self._pop_back(n - len(taken)) if len(taken) < n else taken

    def _pop_back(self, n: int) -> list[int]:
        self._live -= n
        taken: list[int] = []
        while len(taken) < n:
            stop = self._head + n - len(taken)
            chunk = self._back[self._head : stop]
            if not chunk:
                raise InvariantError(f"the queue lacks {n - len(taken)} of the blocks it counts")
            self._head = stop
            taken += [b for b in chunk if b] if _TOMBSTONE in chunk else chunk
        return taken

    def remove(self, block_ids: Iterable[int]) -> None:
        """Pull cached blocks out, wherever they stand."""
        back, base, position = self._back, self._base, self._position
        count = 0
        for block_id in block_ids:
            idx = position[block_id] - base
            if not self._head <= idx < len(back) or back[idx] != block_id:
                raise InvariantError(f"block {block_id} is not among the cached free blocks")
            back[idx] = _TOMBSTONE
            count += 1
        self._live -= count
        self.num_free_blocks -= count

    def prepend_n(self, block_ids: Sequence[int]) -> None:
        """Put blocks before all others; the first of them becomes the head."""
        self._front.extend(reversed(block_ids))
        self.num_free_blocks += len(block_ids)

    def append_n(self, block_ids: Sequence[int]) -> None:
        """Put blocks behind all others, in this order."""
        back, position = self._back, self._position
        if len(back) > 2 * self._live + _SLACK:
            self._compact()
        for place, block_id in enumerate(block_ids, self._base + len(back)):
            position[block_id] = place
        back.extend(block_ids)
        self._live += len(block_ids)
        self.num_free_blocks += len(block_ids)

    def _compact(self) -> None:
        self._base += len(self._back)
        self._back[:] = [b for b in self._back[self._head :] if b]
        self._head = 0
        for place, block_id in enumerate(self._back, self._base):
            self._position[block_id] = place

    def check_structure(self) -> None:
        """Raise InvariantError if the parts contradict each other. Cost: O(pool)."""
        back, base, head = self._back, self._base, self._head
        if not 0 <= head <= len(back):
            raise InvariantError(f"the queue's head {head} is outside its list of {len(back)}")
        if _TOMBSTONE in self._front:
            raise InvariantError("a tombstone lies on the queue's stack")
        members = [(place, b) for place, b in enumerate(back[head:], base + head) if b]
        if len(members) != self._live:
            raise InvariantError(f"the queue's list has {len(members)} members, not {self._live}")
        lost = [b for place, b in members if self._position[b] != place]
        if lost:
            raise InvariantError(f"the queue has lost the positions of blocks {lost}")
        count = len(self._front) + len(members)
        if count != self.num_free_blocks:
            raise InvariantError(f"the queue has {count} members, not {self.num_free_blocks}")

    def get_all_free_blocks(self) -> list[int]:
        """Return the ids from head to tail. Cost: O(pool)."""
        return self._front[::-1] + [b for b in self._back[self._head :] if b]
