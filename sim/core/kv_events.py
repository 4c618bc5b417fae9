"""KV events: what entered and left the cache index, in vLLM's vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sim.core.block_hashes import BlockHashes, PrefixIdentities
from sim.core.request_content import NO_CONTENT, RequestContent
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import KVCacheSpec
from sim.observer import Observer

MEDIUM_GPU = "GPU"

ExtraKeys = tuple[Any, ...] | None


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    """Events of one moment. Encoded as an array: ``[ts, events, data_parallel_rank]``.

    ts is in seconds, here of simulated time. Source: spec/manager.md 7.1.
    """

    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, omit_defaults=True, tag=True, frozen=True):
    """An event: encoded as a map with the type's name under ``type``, defaults left out."""


class BlockStored(KVCacheEvent, frozen=True, kw_only=True):
    """Blocks registered by one call, for a range of the tokens of a request.

    block_hashes name the blocks really registered, in token order: fewer than the range has where
    blocks are null or outside the mask, maybe none (Q6). parent_block_hash names the block before
    the range, None at the beginning. token_ids are those of the whole range; extra_keys has one
    entry per registered block, None if there is none.
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[ExtraKeys] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(KVCacheEvent, frozen=True, kw_only=True):
    """One key left the index: its block was handed out again, evicted by id, or promoted."""

    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(KVCacheEvent, frozen=True):
    """The whole index was emptied."""


class KVEventBatch(EventBatch, frozen=True):
    """A batch as a subscriber decodes it."""

    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


@dataclass(frozen=True, slots=True)
class _Group:
    """What events say about a group."""

    block_size: int
    kind: str
    sliding_window: int | None

    @classmethod
    def of(cls, spec: KVCacheSpec, context_parallel_size: int) -> _Group:
        # Full attention may carry a window too, which events do not name.
        is_sliding = spec.kind.startswith("sliding_window")
        window = getattr(spec, "sliding_window", None) if is_sliding else None
        return cls(spec.block_size * context_parallel_size, spec.kind, window)


class KVEventLog(Observer):
    """Collects events in the order in which they happen.

    content : request id -> what its tokens are; without it events carry no tokens
    hashes : how prefix identities are named outside
    context_parallel_size : factor between a spec's block size and that of its manager

    Duplicates are real: a consumer must count (``replay``). Source: spec/manager.md 7.1.
    Deviation: lora_id, which the reference calls legacy, is always None.
    """

    __slots__ = ("_content", "_events", "_groups", "_hash_block_size", "_hashes")

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        hash_block_size: int,
        content: Callable[[str], RequestContent] = lambda request_id: NO_CONTENT,
        hashes: BlockHashes | None = None,
        context_parallel_size: int = 1,
    ):
        self._events: list[KVCacheEvent] = []
        self._hash_block_size = hash_block_size
        self._content = content
        self._hashes = PrefixIdentities() if hashes is None else hashes
        self._groups = [
            _Group.of(group.kv_cache_spec, context_parallel_size)
            for group in kv_cache_config.kv_cache_groups
        ]

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
        size = self._groups[group_id].block_size
        self._store(group_id, request_id, first_idx * size, last_idx * size, size,
                    parent_prefix_id, prefix_ids)  # fmt: skip

    def registered_partial(
        self,
        group_id: int,
        request_id: str,
        num_tokens: int,
        parent_prefix_id: int,
        block_id: int,
        prefix_id: int,
    ) -> None:
        """Append one BlockStored of a single hash block."""
        size = self._hash_block_size
        self._store(group_id, request_id, num_tokens - size, num_tokens, size,
                    parent_prefix_id, [prefix_id])  # fmt: skip

    def _store(
        self,
        group_id: int,
        request_id: str,
        first: int,
        last: int,
        block_size: int,
        parent_prefix_id: int,
        prefix_ids: Sequence[int],
    ) -> None:
        group, content = self._groups[group_id], self._content(request_id)
        hash_of = self._hashes.namer(content, last // self._hash_block_size)
        event = BlockStored(
            block_hashes=[hash_of(i) for i in prefix_ids],
            parent_block_hash=hash_of(parent_prefix_id) if first else None,
            token_ids=content.token_ids(first, last),
            block_size=block_size,
            lora_id=None,
            medium=MEDIUM_GPU,
            lora_name=content.lora_name,
            extra_keys=self._extra_keys(content, first, block_size, prefix_ids),
            group_idx=group_id,
            kv_cache_spec_kind=group.kind,
            kv_cache_spec_sliding_window=group.sliding_window,
        )
        self._events.append(event)

    def _extra_keys(
        self, content: RequestContent, first: int, block_size: int, prefix_ids: Sequence[int]
    ) -> list[ExtraKeys] | None:
        """One entry per registered block; the salt belongs to the block at token 0 alone."""
        keys: list[ExtraKeys] = [content.extra_keys(False)] * len(prefix_ids)
        if not first and content.cache_salt and prefix_ids:
            place = block_size // self._hash_block_size - 1
            if prefix_ids[0] == content.prefix_ids[place]:
                keys[0] = content.extra_keys(True)
        return keys or None

    def evicted(
        self, block_ids: Sequence[int], group_ids: Sequence[int], prefix_ids: Sequence[int]
    ) -> None:
        """Append one BlockRemoved per key, in the order of removal."""
        hash_of = self._hashes.namer(NO_CONTENT, 0)
        self._events += [
            BlockRemoved(block_hashes=[hash_of(prefix_id)], medium=MEDIUM_GPU, group_idx=group_id)
            for group_id, prefix_id in zip(group_ids, prefix_ids, strict=True)
        ]

    def cleared(self) -> None:
        """Append AllBlocksCleared."""
        self._events.append(AllBlocksCleared())


def replay(events: Iterable[KVCacheEvent], index: Counter[tuple[int | None, int]]) -> None:
    """Apply events to a multiset of (group, hash): the cache index as an outsider knows it.

    Mutates ``index``. Source: spec/manager.md 7.1, invariant 33.
    """
    for event in events:
        if isinstance(event, BlockStored):
            index.update((event.group_idx, i) for i in event.block_hashes)
        elif isinstance(event, BlockRemoved):
            _subtract(index, [(event.group_idx, i) for i in event.block_hashes])
        else:
            index.clear()


def _subtract(
    index: Counter[tuple[int | None, int]], keys: Iterable[tuple[int | None, int]]
) -> None:
    for key in keys:
        index[key] -= 1
        if not index[key]:
            del index[key]
