"""Where every byte of the KV memory is at one moment: a partition into ten parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sim.errors import InvariantError
from sim.tables import PARTS

if TYPE_CHECKING:
    from sim.layout.plan import Layout

_LOOKAHEAD, _REUSABLE, _LIVE = 1, 2, 3  # what a state's block is; the largest of its holders wins


class GroupBytes(Protocol):
    """What the partition needs to know of a group's block: bytes that add up to the block."""

    layer_padding: int
    page_padding: int
    content: int
    block_size: int
    is_state: bool


@dataclass(frozen=True, slots=True)
class _Entries:
    """Table entries that name a block, of all requests of one group.

    block, index (place in the table), computed (tokens of the request that are computed) and
    skipped (its first tokens that no later token reads): int64 arrays of one length.
    """

    block: np.ndarray
    index: np.ndarray
    computed: np.ndarray
    skipped: np.ndarray


class WastePartition:
    """Splits the KV memory of one layout into ``PARTS``; the parts sum to it as integers.

    Each byte is in the first part that fits: ``remainder`` fills no block; ``null_block``;
    ``free`` blocks hold nothing; then, for every other block, once however many requests share it,
    ``layer_padding`` (layers that its group lacks), ``page_padding`` (bytes of a page beyond its
    content), and of the content ``reusable`` (cached without a holder, or a recurrent state whose
    holders all have a newer one), ``lookahead`` (slots of blocks in which no token is computed),
    ``out_of_window`` (computed tokens that no later token of any holder reads), ``tail`` (slots
    behind the last computed token) and ``live``.

    Cost: O(num_blocks + table entries), in numpy.
    Source: ours.
    """

    def __init__(
        self,
        groups: Sequence[GroupBytes],
        num_blocks: int,
        bytes_per_block: int,
        kv_memory_bytes: int,
    ):
        self.groups = tuple(groups)
        self.num_blocks = num_blocks
        self.bytes_per_block = bytes_per_block
        self.kv_memory_bytes = kv_memory_bytes

    @classmethod
    def of(cls, layout: Layout) -> WastePartition:
        """Return the partition of a layout. Memory that an override adds counts as KV memory."""
        from sim.layout.waste import block_bytes

        return cls(
            block_bytes(layout),
            layout.kv_cache_config.num_blocks,
            layout.bytes_per_block,
            layout.waste["kv_memory_bytes"],
        )

    def sample(self, manager: Any, requests: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the bytes of each part, in the order of ``PARTS``. Mutates nothing.

        Parameters
        ----------
        manager : the KV cache manager; its tables and its pool are read
        requests : the unfinished requests by id; ``num_computed_tokens`` of each is read

        Raises
        ------
        InvariantError
            Free, held and null blocks are not all blocks.
        """
        parts = dict.fromkeys(PARTS, 0)
        parts["remainder"] = self.kv_memory_bytes - self.num_blocks * self.bytes_per_block
        parts["null_block"] = self.bytes_per_block
        num_held = self._add_held(parts, manager.coordinator.single_type_managers, requests)
        num_cached = self._add_cached_free(parts, manager.block_pool.cached_free_by_group)
        num_free = manager.block_pool.get_num_free_blocks()
        parts["free"] = (num_free - num_cached) * self.bytes_per_block
        if num_free + num_held + 1 != self.num_blocks:
            raise InvariantError(
                f"{num_free} free + {num_held} held + 1 null block are not {self.num_blocks}"
            )
        return tuple(parts[name] for name in PARTS)

    def _add_held(
        self, parts: dict[str, int], managers: Sequence[Any], requests: Mapping[str, Any]
    ) -> int:
        """Add all blocks with a holder, each of which is one group's; return their number."""
        num_held = 0
        for group, manager in zip(self.groups, managers, strict=True):
            entries = _entries(manager, requests, has_leading_nulls=not group.is_state)
            add = self._add_states if group.is_state else self._add_slots
            count = add(parts, group, entries)
            _add_padding(parts, group, count)
            num_held += count
        return num_held

    def _add_slots(self, parts: dict[str, int], group: GroupBytes, entries: _Entries) -> int:
        """Add the content of an attention group's held blocks; return their number."""
        size = group.block_size
        start = entries.index * size
        computed = np.zeros(self.num_blocks, np.int64)
        skipped = np.full(self.num_blocks, size, np.int64)
        is_held = np.zeros(self.num_blocks, bool)
        is_held[entries.block] = True
        np.maximum.at(computed, entries.block, np.clip(entries.computed - start, 0, size))
        np.minimum.at(skipped, entries.block, np.clip(entries.skipped - start, 0, size))
        computed, skipped = computed[is_held], skipped[is_held]
        slot_bytes = group.content // size
        num_untouched = int(np.count_nonzero(computed == 0))
        num_computed = int(computed.sum())
        num_out = int(np.minimum(computed, skipped).sum())
        num_tail = (len(computed) - num_untouched) * size - num_computed
        parts["lookahead"] += num_untouched * group.content
        parts["out_of_window"] += num_out * slot_bytes
        parts["tail"] += num_tail * slot_bytes
        parts["live"] += (len(computed) - num_untouched) * group.content
        parts["live"] -= (num_out + num_tail) * slot_bytes
        return len(computed)

    def _add_states(self, parts: dict[str, int], group: GroupBytes, entries: _Entries) -> int:
        """Add the states of a recurrent group's held blocks; return their number."""
        newest = (entries.computed - 1) // group.block_size
        roles = np.full(len(newest), _LIVE, np.int8)
        roles[entries.index < newest] = _REUSABLE
        roles[entries.index > newest] = _LOOKAHEAD
        of_block = np.zeros(self.num_blocks, np.int8)
        np.maximum.at(of_block, entries.block, roles)
        counts = np.bincount(of_block, minlength=4)
        parts["lookahead"] += int(counts[_LOOKAHEAD]) * group.content
        parts["reusable"] += int(counts[_REUSABLE]) * group.content
        parts["live"] += int(counts[_LIVE]) * group.content
        return int(counts[1:].sum())

    def _add_cached_free(self, parts: dict[str, int], counts: Sequence[int]) -> int:
        """Add the free blocks that still cache something; return their number."""
        for group, count in zip(self.groups, counts, strict=True):
            _add_padding(parts, group, count)
            parts["reusable"] += count * group.content
        return sum(counts)


def _add_padding(parts: dict[str, int], group: GroupBytes, num_blocks: int) -> None:
    parts["layer_padding"] += num_blocks * group.layer_padding
    parts["page_padding"] += num_blocks * group.page_padding


def _entries(manager: Any, requests: Mapping[str, Any], *, has_leading_nulls: bool) -> _Entries:
    blocks: list[int] = []
    rows: list[tuple[int, int, int, int]] = []  # first entry, entries, computed, skipped
    for request_id, table in manager.req_to_blocks.items():
        if not table:
            continue
        computed = requests[request_id].num_computed_tokens
        if getattr(manager, "reads_encoder", False):
            computed = requests[request_id].num_encoder_tokens
        first = _num_leading_nulls(table) if has_leading_nulls else 0
        blocks += table[first:] if first else table
        skipped = manager.get_num_skipped_tokens(computed)
        rows.append((first, len(table) - first, computed, skipped))
    first, lengths, computed, skipped = np.array(rows, np.int64).reshape(-1, 4).T
    block = np.fromiter(blocks, np.int64, len(blocks))
    begins = np.cumsum(lengths) - lengths
    index = np.arange(len(block)) + np.repeat(first - begins, lengths)
    named = np.flatnonzero(block)
    columns = (block, index, np.repeat(computed, lengths), np.repeat(skipped, lengths))
    return _Entries(*(column[named] for column in columns))


def _num_leading_nulls(table: Sequence[int]) -> int:
    """Return how many null entries a table of [nulls, then blocks] begins with.

    Bisection, as a long request behind a window has thousands of them. A table that begins with a
    block is taken whole.
    """
    if table[0]:
        return 0
    low, high = 1, len(table)
    while low < high:
        middle = (low + high) // 2
        if table[middle]:
            high = middle
        else:
            low = middle + 1
    return low
