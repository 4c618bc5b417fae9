"""KV events: what entered and left the cache index, in vLLM's vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sim.layout.kv_cache_config import KVCacheConfig
from sim.observer import Observer

MEDIUM_GPU = "GPU"


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks registered by one call, for the token range [first_token, last_token) of a request.

    block_hashes name the blocks really registered, in token order: fewer than the range has where
    blocks are null or outside the mask, maybe none (Q6). They are the run's dense prefix
    identities. parent_block_hash names the block before the range, None at the beginning.
    """

    block_hashes: tuple[int, ...]
    parent_block_hash: int | None
    first_token: int
    last_token: int
    block_size: int
    group_idx: int
    request_id: str
    kv_cache_spec_kind: str
    kv_cache_spec_sliding_window: int | None = None
    medium: str = MEDIUM_GPU


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """One key left the index: its block was handed out again or evicted by id."""

    block_hashes: tuple[int]
    group_idx: int
    medium: str = MEDIUM_GPU


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The whole index was emptied."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventLog(Observer):
    """Collects events in the order in which they happen.

    Duplicates are real: a consumer must count (``replay``). Source: spec/manager.md 7.1.
    Deviation: token positions instead of token ids, prefix identities instead of digests.
    """

    __slots__ = ("_events", "_specs")

    def __init__(self, kv_cache_config: KVCacheConfig):
        self._events: list[KVCacheEvent] = []
        self._specs = [g.kv_cache_spec for g in kv_cache_config.kv_cache_groups]

    def take_events(self) -> list[KVCacheEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

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
        """Append one BlockStored for the call, whatever it registered."""
        spec = self._specs[group_id]
        self._events.append(
            BlockStored(
                block_hashes=tuple(prefix_ids),
                parent_block_hash=parent_prefix_id if first_idx else None,
                first_token=first_idx * spec.block_size,
                last_token=last_idx * spec.block_size,
                block_size=spec.block_size,
                group_idx=group_id,
                request_id=request_id,
                kv_cache_spec_kind=spec.kind,
                kv_cache_spec_sliding_window=getattr(spec, "sliding_window", None),
            )
        )

    def evicted(
        self, block_ids: Sequence[int], group_ids: Sequence[int], prefix_ids: Sequence[int]
    ) -> None:
        """Append one BlockRemoved per key, in the order of removal."""
        self._events += [
            BlockRemoved((prefix_id,), group_id)
            for group_id, prefix_id in zip(group_ids, prefix_ids, strict=True)
        ]

    def cleared(self) -> None:
        """Append AllBlocksCleared."""
        self._events.append(AllBlocksCleared())


def replay(events: Iterable[KVCacheEvent], index: Counter[tuple[int, int]]) -> None:
    """Apply events to a multiset of (group, identity): the cache index as an outsider knows it.

    Mutates ``index``. Source: spec/manager.md 7.1, invariant 33.
    """
    for event in events:
        if isinstance(event, BlockStored):
            index.update((event.group_idx, i) for i in event.block_hashes)
        elif isinstance(event, BlockRemoved):
            index.subtract((event.group_idx, i) for i in event.block_hashes)
        else:
            index.clear()
    for key in [key for key, count in index.items() if not count]:
        del index[key]
