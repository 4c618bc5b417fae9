"""Layers of one type and different shapes behind one block table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from sim.layout.kv_cache_spec.base import KVCacheSpec, MemoryLimits


@dataclass(frozen=True, kw_only=True)
class UniformTypeKVCacheSpecs(KVCacheSpec):
    """A bundle: every layer has a page of its own, and a block is all of them together.

    members: pairs of layer name and spec, all with this block size. Source: spec/layout.md 2.2.
    """

    members: tuple[tuple[str, KVCacheSpec], ...]

    @classmethod
    def of(cls, specs: Mapping[str, KVCacheSpec]) -> UniformTypeKVCacheSpecs:
        """Return the bundle of layers by name, in their order; not empty."""
        first = next(iter(specs.values()))
        return cls(block_size=first.block_size, members=tuple(specs.items()))

    def only(self, layer_names: Iterable[str]) -> UniformTypeKVCacheSpecs:
        """Return the bundle of some of its layers; of all of them if none is named."""
        wanted = set(layer_names)
        kept = tuple((name, spec) for name, spec in self.members if name in wanted)
        return UniformTypeKVCacheSpecs(block_size=self.block_size, members=kept) if kept else self

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The members' kind if they agree."""
        kinds = {spec.kind for spec in self.count_by_spec}
        return kinds.pop() if len(kinds) == 1 else "unknown"

    @cached_property
    def specs(self) -> tuple[KVCacheSpec, ...]:
        """The members' specs, in order."""
        return tuple(spec for _, spec in self.members)

    @cached_property
    def count_by_spec(self) -> dict[KVCacheSpec, int]:
        """How many members have each spec, in first-seen order."""
        return dict(Counter(self.specs))

    @property
    def num_tuples(self) -> int:
        """How often the most frequent page size occurs. Source: spec/layout.md 6.3."""
        return max(Counter(spec.page_size_bytes for spec in self.specs).values())

    @cached_property
    def real_page_size_bytes(self) -> int:  # type: ignore[override]
        """Content of all members' pages."""
        return sum(spec.real_page_size_bytes for spec in self.specs)

    @cached_property
    def page_size_bytes(self) -> int:  # type: ignore[override]
        """All members' pages."""
        return sum(spec.page_size_bytes for spec in self.specs)

    def max_blocks(self, limits: MemoryLimits) -> int:
        """Most blocks of any member: they share one block table."""
        return max(spec.max_blocks(limits) for spec in self.count_by_spec)

    def max_memory_usage_bytes(self, limits: MemoryLimits) -> int:
        """That many blocks of all members."""
        return self.max_blocks(limits) * self.page_size_bytes

    def need_bytes(self, limits: MemoryLimits) -> int:
        """Sum of the members' own maxima: what the admission check asks for.

        Source: spec/layout.md 8.2.
        """
        return sum(
            count * spec.max_memory_usage_bytes(limits)
            for spec, count in self.count_by_spec.items()
        )
