"""What the core tells the outside. Observation returns nothing and changes no decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.request import Request


class Observer:
    """Receives what happens to blocks and tables; every argument is an integer, a list, or an id.

    This base class ignores everything, so it is also the null observer: an event costs one call.
    Lists belong to the caller and are valid during the call only.
    """

    __slots__ = ()

    # -- the pool and the cache index ---------------------------------------------------
    def allocated(self, block_ids: Sequence[int], group_id: int) -> None:
        """Blocks left the free queue for a group, in this order; their content is gone."""

    def touched(self, block_ids: Sequence[int], group_id: int) -> None:
        """Cached blocks of a group gained a holder."""

    def freed(self, block_ids: Sequence[int]) -> None:
        """Blocks lost a holder, in this order; one without holders is in the free queue now.

        The table verb that gave them up came before.
        """

    def evicted(
        self, block_ids: Sequence[int], group_ids: Sequence[int], prefix_ids: Sequence[int]
    ) -> None:
        """Keys left the cache index: of each block the group and the identity, in this order."""

    def evicted_by_id(self, block_id: int) -> None:
        """A block is to be forgotten by its id, whatever it caches; ``evicted`` tells its keys."""

    def registered(
        self,
        group_id: int,
        request_id: str,
        first_idx: int,
        last_idx: int,
        parent_prefix_id: int,
        block_ids: Sequence[int],
        prefix_ids: Sequence[int],
    ) -> None:
        """Keys entered the cache index by one call for blocks [first, last) of a request.

        ``block_ids`` and ``prefix_ids`` name those really registered: null blocks and blocks
        outside the mask are missing, so both lists may be shorter than the range, or empty.
        ``parent_prefix_id`` names the prefix before the range, -1 at the beginning.
        """

    def registered_partial(
        self,
        group_id: int,
        request_id: str,
        num_tokens: int,
        parent_prefix_id: int,
        block_id: int,
        prefix_id: int,
    ) -> None:
        """A block that is not full entered the index at its first ``num_tokens`` prefix tokens.

        ``num_tokens`` counts from the beginning of the request; ``parent_prefix_id`` names the
        prefix one hash block shorter, -1 at the beginning.
        """

    def passed_over(
        self,
        group_id: int,
        request_id: str,
        prefix_ids: Sequence[int],
        masked: Sequence[bool],
    ) -> None:
        """Blocks of a range that ``registered`` is told about next were left out of the index.

        ``prefix_ids`` names them, ``masked`` says why: True if the mask left the block out, False
        if the entry is null.
        """

    def cleared(self) -> None:
        """The whole cache index was emptied."""

    def looked_up(self, request: Request, max_length: int, num_hit: int) -> None:
        """A request was looked up for at most ``max_length`` tokens; ``num_hit`` were found.

        Answers that are remembered are not told again.
        """

    # -- block tables, per request and group ----------------------------------------------
    def table_append(self, request_id: str, group_id: int, block_ids: Sequence[int]) -> None:
        """Entries were appended to a table; 0 is the null block."""

    def table_null(self, request_id: str, group_id: int, first_idx: int, last_idx: int) -> None:
        """Entries [first, last) of a table became null."""

    def table_move(self, request_id: str, group_id: int, from_idx: int, to_idx: int) -> None:
        """The block of entry ``from`` now stands at the appended entry ``to``; ``from`` is null."""

    def table_replace(self, request_id: str, group_id: int, idx: int, block_id: int) -> None:
        """Entry ``idx`` now names another block."""

    def table_drop(self, request_id: str, group_id: int) -> None:
        """The request gave its table back."""

    def copied(self, source: int, target: int) -> None:
        """The content of one block was copied to another."""


NULL_OBSERVER = Observer()
