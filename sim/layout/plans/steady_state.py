"""Where the memory is when as many requests as fit sit in it, decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.layout.grouping.lengths import LengthDistribution
from sim.layout.kv_cache_spec import (
    CrossAttentionSpec,
    FullFamilySpec,
    KVCacheSpec,
    MambaSpec,
    MemoryLimits,
)
from sim.layout.plans.planned import Planned, PlannedGroup, PlannedPool
from sim.units import cdiv

PARTS = (
    "live",
    "tail",
    "out_of_window",
    "reusable",
    "lookahead",
    "page_padding",
    "layer_padding",
    "null_block",
    "free",
    "remainder",
)
"""The parts of the KV memory, as design.md 4.11 names them; they sum to it."""


@dataclass(frozen=True, slots=True)
class Held:
    """What requests hold in one group, in cells: tokens, or whole recurrent states."""

    blocks: int = 0
    live: int = 0
    tail: int = 0
    out_of_window: int = 0
    reusable: int = 0
    lookahead: int = 0

    def plus(self, other: Held, times: int = 1) -> Held:
        """Return this and ``times`` the other."""
        names = Held.__slots__
        return Held(*(getattr(self, n) + times * getattr(other, n) for n in names))


def held_at(spec: KVCacheSpec, length: int, limits: MemoryLimits) -> Held:
    """Return what a request holds of a layer once ``length`` tokens are computed.

    Blocks whose tokens no later token reads are given back; the first block that stays may begin
    before the window does. Layers that are kept whole give nothing back, also where a window or a
    chunk is recorded. Source: spec/layout.md 2.2, 5.2; design.md 4.11.
    """
    if isinstance(spec, MambaSpec):
        return _states(spec, length, limits)
    if isinstance(spec, CrossAttentionSpec):
        return _tokens(spec.block_size, limits.max_num_encoder_input_tokens, 0)
    if isinstance(spec, FullFamilySpec):
        length = cdiv(length, limits.context_parallel_size)
        return _kept_whole(_tokens(spec.block_size, length, 0), _not_read(spec, length))
    return _tokens(spec.block_size, length, _not_read(spec, length))


def _not_read(spec: KVCacheSpec, length: int) -> int:
    """Leading tokens that no later token reads."""
    window = getattr(spec, "sliding_window", None)
    chunk = getattr(spec, "attention_chunk_size", None)
    if window is not None:
        return max(0, length - window + 1)
    return 0 if chunk is None else length // chunk * chunk


def _kept_whole(held: Held, not_read: int) -> Held:
    return replace(held, live=held.live - not_read, out_of_window=held.out_of_window + not_read)


def _tokens(block_size: int, length: int, skipped: int) -> Held:
    first, blocks = skipped // block_size, cdiv(length, block_size)
    return Held(
        blocks=blocks - first,
        live=length - skipped,
        tail=blocks * block_size - length,
        out_of_window=skipped - first * block_size,
    )


def _states(spec: MambaSpec, length: int, limits: MemoryLimits) -> Held:
    """One state is live; those at earlier block boundaries can still serve a prefix."""
    mode = limits.mamba_cache_mode
    blocks = 1 if mode == "none" else cdiv(length, spec.block_size)
    kept = min(blocks, 2) if mode == "align" else blocks
    ahead = spec.num_speculative_blocks
    return Held(blocks=kept + ahead, live=1, reusable=kept - 1, lookahead=ahead)


Holding = tuple[Held, ...]
"""What requests hold of each different layer spec of a group; all have the same blocks."""


def round_of(group: PlannedGroup, lengths: LengthDistribution, limits: MemoryLimits) -> Holding:
    """Return what all requests of one round of the length distribution hold in a group."""
    return tuple(_total(spec, lengths, limits) for spec, _ in group.contents)


def _total(spec: KVCacheSpec, lengths: LengthDistribution, limits: MemoryLimits) -> Held:
    total = Held()
    for length, often in lengths.pairs:
        total = total.plus(held_at(spec, length, limits), often)
    return total


def num_rounds(pool: PlannedPool, held: Sequence[Holding]) -> int:
    """Return how many rounds fit into a pool at once, reserved pages left alone."""
    usable = pool.num_pages - pool.reserved
    low, high = 0, max(usable, 0) * max(group.per_page for group in pool.groups)
    while low < high:
        middle = (low + high + 1) // 2
        fits = pool.pages_for([middle * one[0].blocks for one in held]) <= usable
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def steady_state(
    memory: Planned, lengths: LengthDistribution, limits: MemoryLimits
) -> tuple[int, dict[str, int]]:
    """Return how many requests fit, and the bytes of each part of the memory; they sum to it.

    Requests come in whole rounds of the length distribution, each with its last token computed;
    nothing is shared and no request waits. So ``free`` is what is too small for one more round.
    """
    held = [[round_of(group, lengths, limits) for group in pool.groups] for pool in memory.pools]
    rounds = min(num_rounds(pool, h) for pool, h in zip(memory.pools, held, strict=True))
    parts = dict.fromkeys(PARTS, 0)
    parts["remainder"] = memory.remainder_bytes
    for pool, in_pool in zip(memory.pools, held, strict=True):
        _add_pool(parts, pool, in_pool, rounds)
    return rounds * lengths.num_requests, parts


def _add_pool(
    parts: dict[str, int], pool: PlannedPool, held: Sequence[Holding], rounds: int
) -> None:
    parts["null_block"] += pool.reserved * pool.page_bytes
    parts["free"] += (pool.num_pages - pool.reserved) * pool.page_bytes
    for group, holding in zip(pool.groups, held, strict=True):
        blocks = rounds * holding[0].blocks
        parts["free"] -= blocks * group.block_bytes
        parts["layer_padding"] += blocks * group.layer_padding_bytes
        parts["page_padding"] += blocks * group.page_padding_bytes
        for (spec, content), one in zip(group.contents, holding, strict=True):
            cells = 1 if group.is_recurrent else spec.block_size
            _add_content(parts, blocks * content, blocks * cells, Held().plus(one, rounds))


def _add_content(parts: dict[str, int], content: int, cells: int, held: Held) -> None:
    """Divide content bytes among its parts by cells; what rounding leaves counts as live."""
    parts["live"] += content
    for name in ("tail", "out_of_window", "reusable", "lookahead"):
        share = content * getattr(held, name) // cells if cells else 0
        parts[name] += share
        parts["live"] -= share
