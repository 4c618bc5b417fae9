"""The smallest legal specs, configs, requests and managers; keyword-only where it matters."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import gcd, lcm

from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from sim.observer import Observer
from sim.request import Request, RequestStatus


def full(block_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype_bytes=2)


def sliding(block_size: int, window: int) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=block_size, num_kv_heads=1, head_size=8, dtype_bytes=2, sliding_window=window
    )


def mamba(block_size: int, mode: str = "align", num_speculative_blocks: int = 0) -> MambaSpec:
    return MambaSpec(
        block_size=block_size,
        shapes=((8,),),
        dtype_bytes=(2,),
        mamba_cache_mode=mode,
        num_speculative_blocks=num_speculative_blocks,
    )


def make_kv_cache_config(
    specs: Sequence[KVCacheSpec], *, num_blocks: int, eagle_groups: Iterable[int] = ()
) -> KVCacheConfig:
    """Return a pool of ``num_blocks`` ids (one of them null), one layer for each group."""
    eagle = set(eagle_groups)
    groups = tuple(
        KVCacheGroupSpec((f"layer.{g}",), spec, g in eagle) for g, spec in enumerate(specs)
    )
    return KVCacheConfig(num_blocks, (), groups)


def make_manager(
    implementation,
    specs: Sequence[KVCacheSpec],
    *,
    num_blocks: int,
    eagle_groups: Iterable[int] = (),
    max_model_len: int = 8192,
    hash_block_size: int | None = None,
    **settings,
):
    """Return a manager whose scheduler block is the LCM and whose hash block is the GCD."""
    sizes = [spec.block_size for spec in specs]
    return implementation.KVCacheManager(
        make_kv_cache_config(specs, num_blocks=num_blocks, eagle_groups=eagle_groups),
        max_model_len,
        lcm(*sizes),
        hash_block_size or gcd(*sizes),
        **settings,
    )


class Prefixes:
    """Names prefixes of token sequences by looking the whole prefix up in a dict."""

    def __init__(self, hash_block_size: int):
        self.hash_block_size = hash_block_size
        self.names: dict[tuple[Hashable, ...], int] = {}

    def of(self, tokens: Sequence[Hashable]) -> list[int]:
        ends = range(self.hash_block_size, len(tokens) + 1, self.hash_block_size)
        return [self.names.setdefault(tuple(tokens[:end]), len(self.names)) for end in ends]

    def request(
        self, request_id: str, prompt: Sequence[Hashable], *, max_tokens: int = 8
    ) -> Request:
        """Return a request whose outputs are tokens that nobody else has."""
        outputs = [(request_id, i) for i in range(max_tokens)]
        return Request(request_id, len(prompt), max_tokens, self.of([*prompt, *outputs]))


def allocate(manager, request: Request, num_tokens: int, **settings):
    """Allocate as the scheduler does for a running request; advance it if there was room."""
    new = manager.allocate_slots(request, num_tokens, **settings)
    if new is not None:
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens += num_tokens
    return new


def admit(manager, request: Request, num_tokens: int | None = None, **settings):
    """Look up, then allocate ``num_tokens`` (all of the rest by default); return (hit, new)."""
    rows, hit = manager.get_computed_blocks(request)
    num_tokens = request.num_tokens - hit if num_tokens is None else num_tokens
    new = manager.allocate_slots(
        request, num_tokens, num_new_computed_tokens=hit, new_computed_blocks=rows, **settings
    )
    if new is not None:
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit + num_tokens
    return hit, new


def decode(manager, request: Request):
    """Append one generated token and allocate for it."""
    request.num_tokens += 1
    return allocate(manager, request, 1)


def tables(manager, request: Request) -> list[list[int]]:
    return [list(table) for table in manager.get_block_ids(request.request_id)]


def free_list(manager) -> list[int]:
    return list(manager.block_pool.free_block_queue.get_all_free_blocks())


def num_held(manager, request: Request) -> int:
    """Entries of all tables of a request that are real blocks."""
    return sum(1 for table in tables(manager, request) for block_id in table if block_id)


def put_in_cache(manager, group_id: int, names: Iterable[int]) -> dict[int, int]:
    """Register one free block for each prefix id; return prefix id -> block id."""
    pool = manager.block_pool
    names = list(names)
    blocks = pool.get_new_blocks(len(names), group_id)
    for block_id, name in zip(blocks, names, strict=True):
        pool.register(block_id, group_id, name)
    return dict(zip(names, blocks, strict=True))


def mask_text(mask: Sequence[bool] | None, num_blocks: int) -> str:
    """Return a mask as the specification prints it: X is registered."""
    kept = [True] * num_blocks if mask is None else mask
    return "".join("X" if k else "." for k in kept)


class EventLog(Observer):
    """Keeps what the core reports, as flat lists by kind; null blocks are left out."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.events: dict[str, list] = {
            kind: []
            for kind in ("allocated", "touched", "freed", "evicted", "registered", "partial")
        }

    def allocated(self, block_ids, group_id):
        self.events["allocated"] += [b for b in block_ids if b]

    def touched(self, block_ids, group_id):
        self.events["touched"] += [b for b in block_ids if b]

    def freed(self, block_ids):
        self.events["freed"] += [b for b in block_ids if b]

    def evicted(self, block_ids, group_ids, prefix_ids):
        self.events["evicted"] += zip(block_ids, group_ids, prefix_ids, strict=True)

    def registered(
        self, group_id, request_id, first_idx, last_idx, parent_prefix_id, block_ids, prefix_ids
    ):
        pairs = list(zip(block_ids, prefix_ids, strict=True))
        self.events["registered"].append(
            (group_id, request_id, first_idx, last_idx, parent_prefix_id, pairs)
        )

    def registered_partial(self, *args):
        self.events["partial"].append(args)

    def cleared(self):
        self.events["evicted"].append("everything")
