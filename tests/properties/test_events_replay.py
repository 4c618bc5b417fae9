"""Law 33: replayed as a multiset, events give the exact index, at every step of random runs."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from sim import simulation
from sim.config import Scenario, validated
from sim.core.block_hashes import BLOCK_HASHES
from sim.core.kv_events import BlockRemoved, BlockStored, KVEventLog, replay
from sim.core.request_content import RequestContent
from sim.event_files import read_kv_events
from sim.observers import together
from sim.request import RequestStatus
from sim.token_ids import token_ids
from tests.faults.live import HASH_BLOCK_SIZE, NUM_BLOCKS, SPECS, Live
from tests.helpers import full, make_kv_cache_config, sliding


class Told(Live):
    """A live run whose events are replayed; its requests are spans and their identities."""

    def __init__(self, seed: int, hashes: str, specs=SPECS, **settings):
        self.contents: dict[str, RequestContent] = {}
        self.spans_of: dict[str, tuple] = {}
        config = make_kv_cache_config(specs, num_blocks=NUM_BLOCKS)
        self.hashes = BLOCK_HASHES[hashes](HASH_BLOCK_SIZE, "0")
        content = self.contents.__getitem__
        self.log = KVEventLog(config, HASH_BLOCK_SIZE, content, self.hashes)
        self.index: Counter = Counter()
        self.events: list = []
        super().__init__(seed, specs, observer=together([self.log]), **settings)

    def note(self, request_id, spans, prefix_ids):
        self.spans_of[request_id] = spans
        self.contents[request_id] = RequestContent(partial(token_ids, spans), prefix_ids)

    def truth(self) -> Counter:
        """The index, under the names that events use."""
        name = self.hashes.namer(RequestContent(lambda first, last: []), 0)
        pool = self.pool
        keys = [(pool.group_id[b], i) for b, i in enumerate(pool.prefix_id) if i >= 0]
        for block_id, partial_keys in pool.partial_keys.items():
            keys += [(pool.group_id[block_id], i) for i in partial_keys.secondary]
        return Counter((group_id, name(i)) for group_id, i in keys)

    def agrees(self) -> None:
        events = self.log.take_events()
        self.events += events
        replay(events, self.index)
        assert self.index == self.truth()

    def cache_partly(self) -> None:
        """Make the first clean block of a full-attention table findable before it is full."""
        for request_id, table in self.single(0).req_to_blocks.items():
            for idx, block_id in enumerate(table):
                if block_id and self.pool.prefix_id[block_id] < 0:
                    ids = self.contents[request_id].prefix_ids
                    num_tokens = idx * 8 + HASH_BLOCK_SIZE
                    if num_tokens // HASH_BLOCK_SIZE <= len(ids):
                        self.pool.cache_partial_block(request_id, block_id, num_tokens, ids, 0, 8)
                    return


WORLDS = {
    "three kinds": {},
    "thinned out": {"retention_interval": 16},
    "two kinds": {"specs": (full(8), sliding(4, 12))},
}


@pytest.mark.parametrize("hashes", list(BLOCK_HASHES))
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", range(3))
def test_replayed_events_give_the_index_at_every_step(world, hashes, seed):
    told = Told(seed, hashes, **WORLDS[world])
    for turn in range(1, 70):
        told.step()
        told.agrees()
        if turn % 7 == 0:
            told.cache_partly()
            told.agrees()
        if turn % 11 == 0:
            told.manager.evict_blocks(sorted(set(told.pool.cached_blocks[0].values()))[:3])
            told.agrees()
        if turn % 13 == 0:
            victim = next(iter(told.scheduler.requests))
            told.scheduler.finish_requests([victim], RequestStatus.FINISHED_ABORTED)
            told.agrees()
        if turn % 29 == 0:
            assert told.scheduler.reset_prefix_cache(reset_running_requests=True)
            told.agrees()
            assert not told.index
    kinds = Counter(type(event).__name__ for event in told.events)
    assert kinds["BlockStored"] > 100 and kinds["BlockRemoved"] > 100
    assert kinds["AllBlocksCleared"] == 2


@pytest.mark.parametrize("seed", range(3))
def test_digests_name_prefixes_as_identities_do_and_tokens_are_the_requests(seed):
    """The same run, told twice: hashes map one to one onto identities, tokens are equal."""
    plain, digested = Told(seed, "prefix_id"), Told(seed, "sha256_cbor")
    for told in (plain, digested):
        told.run(40).agrees()
    forth: dict[int, int] = {}
    back: dict[int, int] = {}
    for mine, other in zip(plain.events, digested.events, strict=True):
        assert type(mine) is type(other)
        if not isinstance(mine, BlockStored | BlockRemoved):
            continue
        for name, digest in zip(mine.block_hashes, other.block_hashes, strict=True):
            assert forth.setdefault(name, digest) == digest
            assert back.setdefault(digest, name) == name
        if isinstance(mine, BlockStored):
            assert mine.token_ids == other.token_ids
            assert len(mine.token_ids) % mine.block_size == 0
            assert len(mine.token_ids) >= len(mine.block_hashes) * mine.block_size
    assert len(forth) > 100


def test_chains_of_parents_lead_from_every_stored_block_to_the_beginning():
    """Unmasked full attention: whoever follows parents and tokens rebuilds each prompt's prefix."""
    told = Told(3, "prefix_id", specs=(full(8), full(4)))
    told.run(40).agrees()
    prefixes: dict[int | None, tuple] = {None: ()}
    for event in told.events:
        if not isinstance(event, BlockStored) or event.group_idx:
            continue
        tokens = prefixes[event.parent_block_hash]
        for place, name in enumerate(event.block_hashes):
            tokens += tuple(event.token_ids[place * 8 : place * 8 + 8])
            assert prefixes.setdefault(name, tokens) == tokens
    texts = [tuple(token_ids(spans)) for spans in told.spans_of.values()]
    assert len(prefixes) > 50
    for tokens in prefixes.values():
        assert any(text[: len(tokens)] == tokens for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("hashes", list(BLOCK_HASHES))
@pytest.mark.parametrize("file_format", ["jsonl", "msgpack"])
def test_the_file_of_a_whole_run_replays_to_its_last_index(
    file_format, hashes, tmp_path, monkeypatch
):
    managers = []
    build = simulation.build_manager

    def remembered(*args, **kwargs):
        managers.append(build(*args, **kwargs))
        return managers[-1]

    monkeypatch.setattr(simulation, "build_manager", remembered)
    data = {
        "model": "google--gemma-3-1b-it",
        "cache": {"kv_cache_memory_bytes": "400MiB"},
        "scheduler": {"max_model_len": 32_768},
        "engine": {"kv_events": file_format, "kv_events_hash": hashes},
        "workload": {"name": "multi_turn", "params": {"num_requests": 20}},
    }
    result = simulation.simulate(validated(Scenario, data))
    assert f"kv_events.{file_format}" in result.save(tmp_path / "run", figures=False)
    pool = managers[0].block_pool
    index: Counter = Counter()
    times = []
    for batch in read_kv_events(tmp_path / "run" / f"kv_events.{file_format}"):
        times.append(batch.ts)
        replay(batch.events, index)
    # Something is decided only when a step starts or ends. At one instant outputs are applied, and
    # what they complete is registered; then one step is scheduled, or two after an idle time.
    steps = result.steps
    instants = {*(steps["start_ns"] / 1e9), *(steps["end_ns"] / 1e9)}
    assert times == sorted(times) and set(times) <= instants
    assert max(Counter(times).values()) <= 3
    assert sum(index.values()) == sum(1 for i in pool.prefix_id if i >= 0) > 100
    if hashes == "prefix_id":
        truth = Counter((pool.group_id[b], i) for b, i in enumerate(pool.prefix_id) if i >= 0)
        assert index == truth
