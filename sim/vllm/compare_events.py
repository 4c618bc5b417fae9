"""KV events, on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sim.vllm.difference import Difference, of_sequences


def of_events(
    ours: Sequence[Any], theirs: Sequence[Any], name: Callable[[Any], int]
) -> Difference | None:
    """Compare events field by field, in order.

    name : one of vLLM's hashes -> our identity; ours carry identities already
    """
    mine = [_fields(event, int) for event in ours]
    other = [_fields(event, name) for event in theirs]
    found = of_sequences("KV events", mine, other)
    if found is None or None in (found.ours, found.theirs):
        return found
    return _of_fields(found)


def _fields(event: Any, name: Callable[[Any], int]) -> dict[str, Any]:
    kind = type(event).__name__
    if kind == "AllBlocksCleared":
        return {"type": kind}
    fields = {
        "type": kind,
        "group_idx": event.group_idx,
        "block_hashes": [name(block_hash) for block_hash in event.block_hashes],
        "medium": event.medium,
    }
    if kind == "BlockRemoved":
        return fields
    parent = event.parent_block_hash
    return fields | {
        "parent_block_hash": None if parent is None else name(parent),
        "token_ids": list(event.token_ids),
        "block_size": event.block_size,
        "lora_name": event.lora_name,
        "extra_keys": event.extra_keys,
        "kv_cache_spec_kind": event.kv_cache_spec_kind,
        "kv_cache_spec_sliding_window": event.kv_cache_spec_sliding_window,
    }


def _of_fields(found: Difference) -> Difference:
    """Name the field that differs; the events themselves may hold thousands of tokens."""
    ours, theirs = found.ours, found.theirs
    key = next(k for k in (*ours, *theirs) if ours.get(k) != theirs.get(k))
    what = f"{found.what}: {key} of a {ours['type']}"
    return Difference(what, ours.get(key), theirs.get(key), group_id=ours.get("group_idx"))
