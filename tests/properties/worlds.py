"""Random settings, random requests, and a pair of managers that are asked the same things."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm
from types import SimpleNamespace

from hypothesis import Phase, settings

from sim.layout.kv_cache_spec import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from sim.prefix_ids import PrefixIds
from sim.request import Request, Span
from tests.helpers import EventLog, full, make_kv_cache_config, mamba, sliding


def machine_settings(num_examples: int, num_steps: int) -> settings:
    """Return settings of a state machine.

    KVSIM_EXAMPLES overrides the number of examples. Only then is a failure shrunk, which can take
    minutes; the notes of a failure name every call, shrunk or not.
    """
    wanted = os.environ.get("KVSIM_EXAMPLES")
    phases = tuple(Phase) if wanted else (Phase.explicit, Phase.generate)
    count = int(wanted or num_examples)
    return settings(max_examples=count, stateful_step_count=num_steps, phases=phases)


@dataclass(frozen=True)
class World:
    """What a manager is built from."""

    specs: tuple[KVCacheSpec, ...]
    num_blocks: int
    max_model_len: int = 64
    max_num_batched_tokens: int = 64
    enable_caching: bool = True
    use_eagle: bool = False
    eagle_groups: tuple[int, ...] = ()
    watermark: float = 0.0
    retention_interval: int | None = None
    speculative: bool = False

    @property
    def hash_block_size(self) -> int:
        return gcd(*(spec.block_size for spec in self.specs))

    @property
    def scheduler_block_size(self) -> int:
        return lcm(*(spec.block_size for spec in self.specs))

    @property
    def hit_alignment(self) -> int:
        return self.scheduler_block_size if self.enable_caching else 1

    @property
    def has_align(self) -> bool:
        return any(isinstance(s, MambaSpec) and s.mamba_cache_mode == "align" for s in self.specs)

    @property
    def eagle(self) -> bool:
        return self.use_eagle or bool(self.eagle_groups)

    @property
    def rows_equal_hit(self) -> bool:
        """False in the settings of Q1 (eagle and mamba) and Q3 (two full-attention specs)."""
        num_full = len({s for s in self.specs if isinstance(s, FullAttentionSpec)})
        has_mamba = any(isinstance(s, MambaSpec) for s in self.specs)
        return num_full < 2 and not (self.eagle and has_mamba)

    def manager(self, implementation, observer):
        config = make_kv_cache_config(
            self.specs, num_blocks=self.num_blocks, eagle_groups=self.eagle_groups
        )
        return implementation.KVCacheManager(
            config,
            self.max_model_len,
            self.scheduler_block_size,
            self.hash_block_size,
            max_num_batched_tokens=self.max_num_batched_tokens,
            enable_caching=self.enable_caching,
            use_eagle=self.use_eagle,
            watermark=self.watermark,
            retention_interval=self.retention_interval,
            observer=observer,
        )


class Choices:
    """Small numbers out of a byte string, so that a script is short to draw and to shrink."""

    def __init__(self, script: bytes):
        self.script = script
        self.position = 0

    def __bool__(self) -> bool:
        return self.position < len(self.script)

    def below(self, bound: int) -> int:
        """Return a number in [0, bound); 0 behind the end of the script."""
        byte = self.script[self.position] if self else 0
        self.position += 1
        return byte % bound

    def of(self, options: Sequence):
        return options[self.below(len(options))]


def random_specs(rng: random.Random, caching: bool, speculative: bool) -> tuple[KVCacheSpec, ...]:
    """One to four groups; block sizes are small multiples of one base, windows small."""
    base = rng.choice([1, 2, 4, 4])
    sizes = [base] if rng.random() < 0.5 else [base, 2 * base, 3 * base]
    num_speculative = rng.choice([0, 1, 2]) if speculative else 0
    mode = "align" if caching or rng.random() < 0.5 else "none"

    def one(kind: str) -> KVCacheSpec:
        size = rng.choice(sizes)
        if kind == "full":
            return full(size)
        if kind == "other full":
            return replace(full(size), head_size=16, head_size_v=16)
        return (
            sliding(size, rng.randint(1, 20))
            if kind == "sliding"
            else mamba(size, mode, num_speculative)
        )

    kinds = rng.choice(KINDS)
    groups = [one(kind) for kind in kinds]
    if len(groups) > 1 and rng.random() < 0.4:
        groups.insert(rng.randrange(len(groups)), rng.choice(groups))  # two groups, one spec
    return tuple(groups) if len(set(groups)) > 1 else tuple(groups[:1])


KINDS = [
    ["full"],
    ["sliding"],
    ["mamba"],
    ["full", "sliding"],
    ["full", "sliding"],
    ["sliding", "full"],
    ["full", "mamba"],
    ["full", "mamba"],
    ["mamba", "full"],
    ["sliding", "sliding"],
    ["sliding", "mamba"],
    ["full", "sliding", "sliding"],
    ["full", "sliding", "mamba"],
    ["full", "other full", "sliding"],
    ["other full", "full", "mamba"],
]


def random_world(seed: int) -> World:
    """Return the same world for the same seed; all that matters occurs often."""
    rng = random.Random(seed)
    caching = rng.random() < 0.85
    speculative = rng.random() < 0.25
    specs = random_specs(rng, caching, speculative)
    world = World(
        specs,
        num_blocks=2 + rng.randint(*rng.choice([(1, 15), (8, 30), (20, 60)])) * len(specs),
        max_model_len=rng.choice([30, 64]),
        max_num_batched_tokens=rng.choice([12, 16, 64]),
        enable_caching=caching,
        watermark=rng.choice([0.0, 0.0, 0.0, 0.1, 0.3]),
        speculative=speculative,
    )
    eagle = rng.choice(["no", "no", "no", "all", "flags"])
    if eagle != "no":
        world = replace(world, use_eagle=True)
    if eagle == "flags":
        flags = rng.sample(range(len(specs)), rng.randint(1, len(specs)))
        world = replace(world, eagle_groups=tuple(sorted(flags)))
    thins_out = any(isinstance(s, (SlidingWindowSpec, MambaSpec)) for s in specs)
    if thins_out and rng.random() < 0.25:
        world = replace(world, retention_interval=rng.randint(0, 3) * world.scheduler_block_size)
    return world


DOCUMENTS = ["A", "A", "A", "B"]


def choose_prompt(choices: Choices, max_tokens: int, number: int) -> tuple[Span, ...]:
    """A prefix of a document that others read too, perhaps of two, and a tail of its own."""
    total = 1 + choices.below(max_tokens)
    shared = min(total, choices.below(max_tokens + 12))
    first = shared - (choices.below(shared + 1) if choices.below(3) == 0 else 0)
    spans = [
        Span(choices.of(DOCUMENTS), 0, first),
        Span("C", 0, shared - first),
        Span(f"own{number}", 0, total - shared),
    ]
    return tuple(span for span in spans if span.length)


class TableLog(EventLog):
    """Also rebuilds every block table from what is reported about it."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[tuple[str, int], list[int]] = {}

    def table_append(self, request_id, group_id, block_ids):
        self.tables.setdefault((request_id, group_id), []).extend(block_ids)

    def table_null(self, request_id, group_id, first_idx, last_idx):
        table = self.tables[request_id, group_id]
        assert 0 <= first_idx < last_idx <= len(table)
        table[first_idx:last_idx] = [0] * (last_idx - first_idx)

    def table_move(self, request_id, group_id, from_idx, to_idx):
        table = self.tables[request_id, group_id]
        assert to_idx >= len(table) - 1
        if to_idx == len(table):
            table.append(0)
        table[to_idx], table[from_idx] = table[from_idx], 0

    def table_drop(self, request_id, group_id):
        self.tables.pop((request_id, group_id), None)


class RequestMaker:
    """Makes the same request twice: one record for each implementation."""

    def __init__(self, hash_block_size: int):
        self.prefix_ids = PrefixIds(hash_block_size)
        self.num_made = 0

    def make(
        self, prompt: tuple[Span, ...], max_tokens: int, skip_reading: bool
    ) -> tuple[Request, Request]:
        request_id = f"r{self.num_made}"
        self.num_made += 1
        names = self.prefix_ids.of_spans((*prompt, Span(f"out.{request_id}", 0, max_tokens)))
        num_prompt_tokens = sum(span.length for span in prompt)
        naive, real = (
            Request(
                request_id,
                num_prompt_tokens,
                max_tokens,
                names.tolist(),
                skip_reading_prefix_cache=skip_reading,
            )
            for _ in range(2)
        )
        return naive, real


def plain(value):
    """Return rows and block lists as tuples of lists, so that types do not matter."""
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (list, range)) else value


class ManagerPair:
    """The naive manager and the real one."""

    def __init__(self, world: World, naive: SimpleNamespace, real: SimpleNamespace):
        self.world = world
        self.logs = TableLog(), TableLog()
        self.num_compared = 0
        self.naive = world.manager(naive, self.logs[0])
        self.real = world.manager(real, self.logs[1])

    def both(self, call):
        """Return call(manager, 0 or 1) after both managers gave the same answer."""
        naive, real = plain(call(self.naive, 0)), plain(call(self.real, 1))
        assert real == naive
        return naive

    def compare(self, num_names: int) -> None:
        """Compare everything that both let us see."""
        naive, real = self.naive.block_pool, self.real.block_pool
        assert real.free_block_queue.get_all_free_blocks() == naive.free_block_queue.ids
        assert real.get_num_free_blocks() == naive.get_num_free_blocks()
        assert list(real.ref_cnt)[1:] == naive.ref_cnt[1:]
        assert list(real.prefix_id)[1:] == naive.prefix_id[1:]
        owned = [b for b in naive.blocks[1:] if b.ref_cnt > 0 or b.key is not None]
        assert [real.group_id[b.block_id] for b in owned] == [b.group_id for b in owned]
        assert real.num_cached_free == naive.num_cached_free
        assert list(real.held_by_group) == naive.held_by_group
        assert self.real.usage == naive.get_usage()
        self._compare_index(num_names)
        self._compare_groups()
        for field in ("requests", "queries", "hits"):
            for name in (field, f"preempted_{field}"):
                mine = getattr(self.naive.prefix_cache_stats, name)
                assert getattr(self.real.prefix_cache_stats, name) == mine, name

    def _compare_index(self, num_names: int) -> None:
        """Look every key up; and now and then every name that was ever given, in every group."""
        naive, real = self.naive.block_pool, self.real.block_pool
        keys = list(naive.index)
        self.num_compared += 1
        if self.num_compared % 16 == 0:
            keys = [(g, name) for g in range(len(self.world.specs)) for name in range(num_names)]
        for group_id, name in keys:
            expected = naive.get_cached_block(name, [group_id])
            assert real.get_cached_block(name, [group_id]) == expected

    def _compare_groups(self) -> None:
        naive, real = self.naive.coordinator, self.real.coordinator
        for mine, other in zip(naive.single_type_managers, real.single_type_managers, strict=True):
            tables = {i: list(table) for i, table in other.req_to_blocks.items() if len(table)}
            assert tables == {i: table for i, table in mine.req_to_blocks.items() if table}
            counts = {i: n for i, n in other.num_cached_block.items() if n}
            assert counts == {i: n for i, n in mine.num_cached_block.items() if n}
            assert other.use_eagle == mine.use_eagle
        assert real.num_uncached_common_prefix_tokens == naive.num_uncached_common_prefix_tokens

    def compare_events(self) -> None:
        """Compare what was reported since the last call, and the tables that follow from it."""
        mine, other = self.logs
        for kind, events in mine.events.items():
            assert other.events[kind] == events, kind
        for log in self.logs:
            log.clear()
        for (request_id, group_id), table in other.tables.items():
            assert table == list(self.real.get_block_ids(request_id)[group_id])
        for group_id, manager in enumerate(self.naive.coordinator.single_type_managers):
            for request_id, table in manager.req_to_blocks.items():
                assert other.tables.get((request_id, group_id), []) == table
