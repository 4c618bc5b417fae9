"""A planned memory: pools of pages, and the groups of layers that take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from sim.errors import ConfigError
from sim.layout.capacity import MEMORY_KEY
from sim.layout.grouping.lengths import LengthDistribution
from sim.layout.kv_cache_spec import (
    KVCacheSpec,
    MambaSpec,
    MemoryLimits,
    UniformTypeKVCacheSpecs,
)
from sim.layout.parameters import Parametrised
from sim.layout.settings import LayoutSettings, memory_by_worker
from sim.profiles import VLLM_0_25_1, Profile
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a memory is planned for.

    specs_by_worker: layer name to spec as the engine makes them, before pages are made equal, for
    each pipeline stage. settings and limits: resolved. longest: the model's own maximum length.
    lengths: of the requests that the memory is meant for. block_size: the tokens per block that
    the user named for attention, None for the kernel's own.
    """

    specs_by_worker: tuple[Mapping[str, KVCacheSpec], ...]
    settings: LayoutSettings
    limits: MemoryLimits
    longest: int
    lengths: LengthDistribution
    profile: Profile = VLLM_0_25_1
    block_size: int | None = None

    @property
    def specs(self) -> Mapping[str, KVCacheSpec]:
        """The layers of one worker, which memory plans are for. Raises ConfigError for several."""
        if len(self.specs_by_worker) > 1:
            stages = f"{len(self.specs_by_worker)} pipeline stages"
            raise ConfigError.one("memory plan", stages, "one worker")
        return self.specs_by_worker[0]

    @property
    def memory_bytes(self) -> int:
        """The KV memory of one rank; the least of several."""
        return min(memory_by_worker(self.settings, 1))


@dataclass(frozen=True)
class PlannedGroup:
    """Layers that share a block table, and where the bytes of one of their blocks go.

    block_bytes: what a block takes from its pool; content_bytes: what can hold keys, values or
    states; page_padding_bytes: ends of pages behind the content; the rest of the block is layer
    padding. per_page: blocks that share one page of the pool. spec: says how many blocks a request
    holds and which of their tokens are read.
    """

    layer_names: tuple[str, ...]
    spec: KVCacheSpec
    block_bytes: int
    content_bytes: int
    page_padding_bytes: int = 0
    per_page: int = 1

    @property
    def layer_padding_bytes(self) -> int:
        """Bytes of a block that no layer of the group uses."""
        return self.block_bytes - self.content_bytes - self.page_padding_bytes

    @property
    def is_recurrent(self) -> bool:
        """True if a block is one recurrent state, whatever the request's length."""
        return isinstance(self.contents[0][0], MambaSpec)

    @property
    def contents(self) -> list[tuple[KVCacheSpec, int]]:
        """Each different layer spec with the content bytes of one block in such layers."""
        if not isinstance(self.spec, UniformTypeKVCacheSpecs):
            return [(self.spec, self.content_bytes)]
        num_ranks = self.content_bytes // self.spec.real_page_size_bytes
        members = self.spec.count_by_spec.items()
        return [(spec, num_ranks * n * spec.real_page_size_bytes) for spec, n in members]


@dataclass(frozen=True)
class PlannedPool:
    """Pages of one size that the groups take one by one; ``reserved`` of them hold nothing."""

    num_pages: int
    page_bytes: int
    groups: tuple[PlannedGroup, ...]
    reserved: int

    def pages_for(self, blocks: Sequence[int]) -> int:
        """Return the pages that so many blocks of each group fill, each group rounded up."""
        return sum(cdiv(n, group.per_page) for n, group in zip(blocks, self.groups, strict=True))

    def max_blocks(self, limits: MemoryLimits) -> list[int]:
        """Return the most blocks that a request of the maximum length holds, by group."""
        return [group.spec.max_blocks(limits) for group in self.groups]


@dataclass(frozen=True)
class Planned:
    """A whole memory: its pools, and what is left over.

    missing_layers: layer slots that no layer fills, over all groups. tokens and concurrency: as
    the engine counts them, or by the same reasoning for a plan that the engine does not have.
    log_lines: what the engine prints about the layout, nothing for the other plans.
    """

    pools: tuple[PlannedPool, ...]
    memory_bytes: int
    group_size: int
    missing_layers: int
    tokens: int
    concurrency: float
    log_lines: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[PlannedGroup, ...]:
        """All groups of all pools."""
        return tuple(group for pool in self.pools for group in pool.groups)

    @property
    def remainder_bytes(self) -> int:
        """Memory that fills no page of any pool."""
        return self.memory_bytes - sum(pool.num_pages * pool.page_bytes for pool in self.pools)

    @property
    def recurrent_floor_bytes(self) -> int:
        """What a request takes before its first token: a block of each recurrent group."""
        return sum(group.block_bytes for group in self.groups if group.is_recurrent)

    def mean_bytes(
        self, limits: MemoryLimits, lengths: LengthDistribution
    ) -> tuple[Fraction, Fraction, Fraction]:
        """Return what a request of average length holds, and its layer and page padding, in bytes.

        Each group counts by the most blocks that such a request may hold.
        Source: spec/layout.md B and 15.10.
        """
        blocks = [lengths.mean_blocks(group.spec, limits) for group in self.groups]
        pairs = list(zip(blocks, self.groups, strict=True))
        held = sum((n * group.block_bytes for n, group in pairs), Fraction(0))
        layers = sum((n * group.layer_padding_bytes for n, group in pairs), Fraction(0))
        pages = sum((n * group.page_padding_bytes for n, group in pairs), Fraction(0))
        return held, layers, pages


@dataclass(frozen=True)
class MemoryPlan(Parametrised):
    """A way to divide the memory that no allocator exists for: it is planned and compared."""

    def __call__(self, given: PlanInput) -> Planned:
        """Return the planned memory; a ConfigError is the plan's refusal."""
        return self.function(given, **self.values)


def planned(
    given: PlanInput, pools: Sequence[PlannedPool], group_size: int, missing_layers: int = 0
) -> Planned:
    """Return the memory with its capacity: how many requests of the maximum length fit at once.

    That is the least over the pools of pages by pages of a request, and tokens are that many times
    the length, truncated, as the engine does it for its one pool.

    Raises ConfigError where a pool cannot hold one request of the maximum length.
    """
    concurrency = float("inf")
    for pool in pools:
        blocks = pool.max_blocks(given.limits)
        needed = pool.pages_for(blocks)
        if needed > pool.num_pages:
            raise _too_small(given, pool, needed)
        shares = zip(blocks, pool.groups, strict=True)
        pages = sum(Fraction(n, group.per_page) for n, group in shares)
        if pages:
            concurrency = min(concurrency, float(pool.num_pages / pages))
    tokens = int(concurrency * given.limits.max_model_len)
    return Planned(
        tuple(pools), given.memory_bytes, group_size, missing_layers, tokens, concurrency
    )


def _too_small(given: PlanInput, pool: PlannedPool, needed: int) -> ConfigError:
    text = (
        f"one request of {given.limits.max_model_len} tokens needs {needed} pages of "
        f"{pool.page_bytes} bytes in a pool of {pool.num_pages}"
    )
    return ConfigError.one(MEMORY_KEY, given.memory_bytes, text)
