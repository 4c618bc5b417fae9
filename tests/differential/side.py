"""What an implementation has to offer to be driven: ours, or the reference."""

from __future__ import annotations

from typing import Any

Rows = tuple[list[int], ...]


class ManagerSide:
    """One KVCacheManager and its requests, in plain numbers.

    Blocks are ids, 0 is the null block; content is named by the world's identities.
    """

    name: str
    manager: Any

    def request(self, number: int) -> Any:
        """Return a new record of request ``number`` of the world."""
        raise NotImplementedError

    def append(self, number: int, request: Any, count: int) -> None:
        """Append the next ``count`` output tokens."""
        raise NotImplementedError

    def set_status(self, request: Any, status: str) -> None:
        raise NotImplementedError

    def look_up(self, request: Any) -> tuple[Any, Rows, int]:
        """Return the rows as allocate_slots wants them, as plain lists, and the hit."""
        raise NotImplementedError

    def look_up_direct(self, request: Any, max_length: int, per_group: bool) -> Any:
        raise NotImplementedError

    def allocate(self, request: Any, num_new: int, rows: Any, **settings: Any) -> Rows | None:
        raise NotImplementedError

    def partial(self, request: Any, group_id: int, block_id: int, num_tokens: int) -> Any:
        raise NotImplementedError

    def free_ids(self, block_ids: list[int]) -> None:
        """Give blocks back to the pool in this order."""
        raise NotImplementedError

    def at(self, now_ns: int) -> None:
        """Tell the time to those who measure it."""

    def snapshot(self) -> tuple[Any, ...]:
        """Return the fields of ``SNAPSHOT``: everything that can be compared."""
        raise NotImplementedError


SNAPSHOT = (
    "free queue",
    "reference counts",
    "index",
    "tables",
    "registered",
    "statistics",
    "hint",
    "usage",
    "events",
    "block metrics",
)
