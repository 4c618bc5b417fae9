"""The contract of a free-queue policy: in which order free blocks are handed out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class FreeQueue(Protocol):
    """Holds the free blocks; built as ``policy(block_ids, num_blocks)``, all without content.

    ``num_free_blocks`` counts the members. The pool never adds a member twice, never takes more
    than there are, and removes members only. Whatever the order, ``popleft_n`` must hand out
    ``get_all_free_blocks()[:n]``. Ids run from 1 to ``num_blocks - 1``.

    A policy may also have ``check_structure()``, which raises InvariantError if its parts
    contradict each other, and ``__iter__`` over its members, so that a recount survives links
    that run in a circle (``sim.core.integrity``).
    """

    num_free_blocks: int

    def popleft_n(self, n: int) -> list[int]:
        """Take the first ``n`` blocks, in order; ValueError if n is negative or too large."""

    def remove(self, block_ids: Iterable[int]) -> None:
        """Pull blocks that a hit needs out, wherever they stand; all of them are cached ones."""

    def prepend_n(self, block_ids: Sequence[int]) -> None:
        """Take in blocks without content, the one to hand out first in front."""

    def append_n(self, block_ids: Sequence[int]) -> None:
        """Take in cached blocks, the one to evict first in front."""

    def get_all_free_blocks(self) -> list[int]:
        """Return the members in the order in which they would be handed out. Mutates nothing."""


class FreeQueuePolicy(Protocol):
    """Makes a queue: a class such as ``FreeKVCacheBlockQueue``."""

    def __call__(self, block_ids: Iterable[int], num_blocks: int) -> FreeQueue:
        """Return a queue of these blocks, in this order."""
