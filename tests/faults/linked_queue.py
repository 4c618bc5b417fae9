"""A free queue with links, as the reference has one: links can run in a circle."""

from __future__ import annotations


class LinkedQueue:
    """Order as in vLLM: contentless blocks at the front, cached ones at the back."""

    def __init__(self, block_ids, num_blocks):
        self.after = {-1: -1}
        self.before = {-1: -1}
        self.num_free_blocks = 0
        self.append_n(list(block_ids))

    def _insert(self, block_id, place):
        """Insert after ``place``; -1 is the sentinel."""
        follower = self.after[place]
        self.after[place], self.before[block_id] = block_id, place
        self.after[block_id], self.before[follower] = follower, block_id
        self.num_free_blocks += 1

    def remove(self, block_ids):
        for block_id in block_ids:
            before, after = self.before.pop(block_id), self.after.pop(block_id)
            self.after[before], self.before[after] = after, before
            self.num_free_blocks -= 1

    def prepend_n(self, block_ids):
        for block_id in reversed(block_ids):
            self._insert(block_id, -1)

    def append_n(self, block_ids):
        for block_id in block_ids:
            self._insert(block_id, self.before[-1])

    def popleft_n(self, n):
        if not 0 <= n <= self.num_free_blocks:
            raise ValueError(n)
        taken = [b for b, _ in zip(self, range(n), strict=False)]
        self.remove(taken)
        return taken

    def __iter__(self):
        block_id = self.after[-1]
        while block_id != -1:
            yield block_id
            block_id = self.after[block_id]

    def get_all_free_blocks(self):
        return list(self)
