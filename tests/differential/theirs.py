"""The reference's side of a comparison: vLLM's own classes, called and looked at from outside."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
from collections.abc import Iterable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from sim.vllm.names import scheduler_names
from sim.vllm.specs import kv_cache_spec as vllm_spec
from tests.differential.ours import event_of, in_order, stats_of
from tests.differential.side import ManagerSide, Rows
from tests.differential.specs import spec_of
from tests.differential.world import Content, World, num_prompt_tokens

ERRORS = (AssertionError, ValueError, RuntimeError, NotImplementedError, IndexError, TypeError)

LORA_IDS = {"x": 1, "y": 2, "z": 3}
RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"

_loaded: SimpleNamespace | None = None


def digest(value: Any) -> bytes:
    """A hash function for blocks that is quicker than vLLM's and as good here."""
    return hashlib.blake2b(pickle.dumps(value, 5), digest_size=16).digest()


class Clock:
    """Stands for the module ``time`` where the reference measures: time is told from outside."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def set_retention(world: World) -> None:
    """Set what the reference reads from its environment when a manager is built."""
    if world.retention is None:
        os.environ.pop(RETENTION, None)
    else:
        os.environ[RETENTION] = str(world.retention)


def load() -> SimpleNamespace:
    """Import what is needed of vLLM, once."""
    global _loaded
    if _loaded is None:
        _loaded = SimpleNamespace(**vars(scheduler_names()), hashers={}, sampling={})
        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        _loaded.maybe_convert_block_hash = utils.maybe_convert_block_hash
        _loaded.init_none_hash(digest)
        metrics = importlib.import_module("vllm.v1.core.kv_cache_metrics")
        _loaded.KVCacheMetricsCollector = metrics.KVCacheMetricsCollector
        _loaded.clock = metrics.time = Clock()
    return _loaded


@lru_cache(maxsize=1024)
def group_spec(text: str) -> Any:
    """Return vLLM's spec of a group of a world, given as JSON; specs are immutable."""
    return vllm_spec(spec_of(json.loads(text)))


def kv_cache_config(world: World) -> Any:
    specs = load().specs
    groups = []
    for i, group in enumerate(world.groups):
        spec = group_spec(json.dumps({k: v for k, v in group.items() if k != "eagle"}))
        groups.append(specs.KVCacheGroupSpec([f"layer.{i}"], spec, bool(group.get("eagle"))))
    return specs.KVCacheConfig(
        num_blocks=world.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups
    )


class Names:
    """Which identity of the world each of the reference's hashes stands for.

    Equal tokens must have equal identities and the other way round; both are checked.
    """

    def __init__(self, api: SimpleNamespace, world: World, content: Content):
        self.api, self.world, self.content = api, world, content
        self.num_learned: dict[int, int] = {}
        self.by_hash: dict[bytes, int] = {}
        self.by_name: dict[int, bytes] = {}
        self.by_external: dict[Any, int] = {}

    def learn(self, number: int, request: Any) -> None:
        """Take in the hashes that a request has got since the last time."""
        hashes, names = request.block_hashes, self.content.prefix_ids[number]
        first = self.num_learned.get(number, 0)
        if len(hashes) == first:
            return
        self.num_learned[number] = len(hashes)
        for block_hash, name in zip(hashes[first:], names[first:], strict=False):
            if self.by_hash.setdefault(block_hash, name) != name:
                raise NameError(f"{request.request_id}: one content, two identities")
            if self.by_name.setdefault(name, block_hash) != block_hash:
                raise NameError(f"{request.request_id}: two contents, identity {name}")
            self.by_external[self.api.maybe_convert_block_hash(block_hash)] = name


class RequestMaker:
    """Makes vLLM's requests; shared by both levels."""

    def __init__(self, api: SimpleNamespace, world: World, content: Content):
        self.api, self.world, self.content = api, world, content
        self.names = Names(api, world, content)
        self.tokens = content.tokens
        size = world.hash_size
        if size not in api.hashers:
            api.hashers[size] = api.get_request_block_hasher(size, digest)
        self.hasher = api.hashers[size]

    def make(self, number: int, **more: Any) -> Any:
        told = self.world.requests[number]
        if told.get("lora"):
            more["lora_request"] = self.api.LoRARequest(
                told["lora"], LORA_IDS[told["lora"]], "/nowhere"
            )
        request = self.api.Request(
            request_id=f"r{number}",
            prompt_token_ids=self.tokens[number][: num_prompt_tokens(told)],
            sampling_params=self.sampling(number),
            pooling_params=None,
            arrival_time=0.0,
            block_hasher=self.hasher,
            cache_salt=told.get("salt"),
            priority=told.get("priority", 0),
            **more,
        )
        request.skip_reading_prefix_cache = bool(told.get("skip"))
        self.names.learn(number, request)
        return request

    def sampling(self, number: int) -> Any:
        """Return parameters that end a request by length, or at an output token of its own."""
        told = self.world.requests[number]
        stop = told.get("stop_after")
        if stop:
            token = self.tokens[number][num_prompt_tokens(told) + stop - 1]
            return self._sampling(told["max_tokens"], [token])
        if told["max_tokens"] not in self.api.sampling:
            self.api.sampling[told["max_tokens"]] = self._sampling(told["max_tokens"], None)
        return self.api.sampling[told["max_tokens"]]

    def _sampling(self, max_tokens: int, stop_token_ids: list[int] | None) -> Any:
        return self.api.SamplingParams(
            max_tokens=max_tokens, ignore_eos=True, stop_token_ids=stop_token_ids
        )

    def append(self, number: int, request: Any, count: int) -> None:
        first = request.num_tokens
        request.append_output_token_ids(self.tokens[number][first : first + count])
        self.names.learn(number, request)


def looked_at(manager: Any, names: Names, earlier: Iterable[Any] = ()) -> tuple[Any, ...]:
    """Return the snapshot of one of vLLM's managers."""
    pool, coordinator = manager.block_pool, manager.coordinator
    groups = coordinator.single_type_managers
    events = (*earlier, *manager.take_events())
    return (
        [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
        [b.ref_cnt for b in pool.blocks[1:]],
        index_of(pool, names),
        [{i: [b.block_id for b in t] for i, t in g.req_to_blocks.items() if t} for g in groups],
        [{i: n for i, n in g.num_cached_block.items() if n} for g in groups],
        stats_of(manager.prefix_cache_stats),
        getattr(coordinator, "num_uncached_common_prefix_tokens", 0),
        float(manager.usage),
        in_order(names.world, [event_of(e, names.by_external.__getitem__) for e in events]),
    )


def index_of(pool: Any, names: Names) -> dict[tuple[int, int], list[int]]:
    found = {}
    for key, value in pool.cached_block_hash_to_block._cache.items():
        ids = list(value) if isinstance(value, dict) else [value.block_id]
        found[int.from_bytes(key[-4:], "big"), names.by_hash[key[:-4]]] = ids
    return found


class TheirManager(ManagerSide):
    """vllm.v1.core.kv_cache_manager.KVCacheManager."""

    name = "theirs"

    def __init__(self, world: World, content: Content):
        self.api = api = load()
        self.world = world
        self.maker = RequestMaker(api, world, content)
        set_retention(world)
        self.clock = api.clock
        self.clock.now_ns = 0
        self.metrics = api.KVCacheMetricsCollector(1.0) if world.metrics else None
        self.manager = api.KVCacheManager(
            kv_cache_config(world),
            world.max_model_len,
            world.scheduler_block_size,
            world.hash_size,
            max_num_batched_tokens=world.max_num_batched_tokens,
            enable_caching=world.enable_caching,
            use_eagle=world.use_eagle,
            log_stats=True,
            enable_kv_cache_events=world.events and world.enable_caching,
            dcp_world_size=world.dcp,
            watermark=world.watermark,
            pcp_world_size=world.pcp,
            metrics_collector=self.metrics,
        )

    def at(self, now_ns: int) -> None:
        self.clock.now_ns = now_ns

    def request(self, number: int) -> Any:
        return self.maker.make(number)

    def append(self, number: int, request: Any, count: int) -> None:
        self.maker.append(number, request, count)

    def set_status(self, request: Any, status: str) -> None:
        request.status = self.api.RequestStatus[status]

    def look_up(self, request: Any) -> tuple[Any, Rows, int]:
        rows, hit = self.manager.get_computed_blocks(request)
        return rows, tuple(list(ids) for ids in rows.get_block_ids()), hit

    def look_up_direct(self, request: Any, max_length: int, per_group: bool) -> Any:
        coordinator = self.manager.coordinator
        if per_group:
            rows, lengths = coordinator.find_longest_cache_hit_per_group(
                request.block_hashes, max_length
            )
            return block_ids(rows), list(lengths)
        rows, length = coordinator.find_longest_cache_hit(request.block_hashes, max_length)
        return block_ids(rows), length

    def allocate(self, request: Any, num_new: int, rows: Any, **settings: Any) -> Rows | None:
        new = self.manager.allocate_slots(request, num_new, new_computed_blocks=rows, **settings)
        return None if new is None else tuple(list(ids) for ids in new.get_block_ids())

    def partial(self, request: Any, group_id: int, block_id: int, num_tokens: int) -> Any:
        key = self.manager.block_pool.cache_partial_block(
            request,
            self.manager.block_pool.blocks[block_id],
            num_tokens,
            group_id,
            self.manager.coordinator.single_type_managers[group_id].block_size,
        )
        return None if key is None else self.maker.names.by_hash[key[:-4]]

    def free_ids(self, block_ids: list[int]) -> None:
        pool = self.manager.block_pool
        pool.free_blocks([pool.blocks[i] for i in block_ids])

    def free(self, request: Any) -> None:
        self.manager.free(request)

    def pop_for_free(self, request: Any) -> list[int]:
        return [b.block_id for b in self.manager.pop_blocks_for_free(request)]

    def take_stats(self) -> tuple[int, ...]:
        return stats_of(self.manager.make_prefix_cache_stats())

    def take_new_block_ids(self) -> list[int]:
        return list(self.manager.take_new_block_ids())

    def snapshot(self) -> tuple[Any, ...]:
        ends = self.metrics.drain_events() if self.metrics else []
        return *looked_at(self.manager, self.maker.names), [nanoseconds(e) for e in ends]


def nanoseconds(event: Any) -> tuple[Any, ...]:
    """Return (lifetime, idle, gaps) of the end of a block."""
    gaps = event.reuse_gaps_seconds
    return (
        round(event.lifetime_seconds * 1e9),
        round(event.idle_seconds * 1e9),
        tuple(round(gap * 1e9) for gap in gaps),
    )


def block_ids(rows: Any) -> Rows:
    return tuple([b.block_id for b in row] for row in rows)
