"""What the event log says. Source: spec/manager.md 1.4, 2.3 to 2.5, 7.1, appendix C 9."""

from __future__ import annotations

import pytest

from sim.core.block_hashes import Sha256Cbor
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventLog
from sim.core.request_content import RequestContent
from sim.observers import together
from tests.helpers import Prefixes, admit, allocate, full, make_kv_cache_config, mamba, sliding


class World:
    """A manager whose requests have the tokens 100, 101, ... and an event log."""

    def __init__(self, specs, hash_block_size, num_blocks=40, hashes=None, **settings):
        self.hash_block_size = hash_block_size
        self.prefixes = Prefixes(hash_block_size)
        self.contents: dict[str, RequestContent] = {}
        config = make_kv_cache_config(specs, num_blocks=num_blocks)
        self.log = KVEventLog(config, hash_block_size, self.contents.__getitem__, hashes)
        block_size = max(spec.block_size for spec in specs)
        self.manager = KVCacheManager(
            config, 8192, block_size, hash_block_size, observer=together([self.log]), **settings
        )

    def request(self, request_id: str, num_tokens: int, lora=None, salt=None):
        tokens = list(range(100, 100 + num_tokens))
        names = [*([("salt", lora, salt)] if lora or salt else [])]
        request = self.prefixes.request(request_id, tokens)
        if names:
            request.prefix_ids = [10_000 + i for i in request.prefix_ids]
        self.contents[request_id] = RequestContent(
            lambda first, last: tokens[first:last], request.prefix_ids, lora, salt
        )
        return request

    def events(self):
        return self.log.take_events()


def fields(event, *names):
    return tuple(getattr(event, name) for name in names)


def test_a_full_block_is_stored_with_its_tokens_parent_and_kind():
    world = World([full(4)], 4)
    request = world.request("r", 11)
    admit(world.manager, request, 8)
    allocate(world.manager, request, 3)
    request.num_tokens += 1
    ids = list(request.prefix_ids)
    (first,) = world.events()
    assert first == BlockStored(
        block_hashes=ids[:2],
        parent_block_hash=None,
        token_ids=[100, 101, 102, 103, 104, 105, 106, 107],
        block_size=4,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        extra_keys=[None, None],
        group_idx=0,
        kv_cache_spec_kind="full_attention",
        kv_cache_spec_sliding_window=None,
    )


def test_the_parent_is_the_block_before_the_range():
    world = World([full(4)], 4)
    request = world.request("r", 12)
    admit(world.manager, request, 8)
    allocate(world.manager, request, 4)
    second = world.events()[1]
    assert fields(second, "block_hashes", "parent_block_hash", "token_ids") == (
        [request.prefix_ids[2]],
        request.prefix_ids[1],
        [108, 109, 110, 111],
    )


def test_adapter_in_every_block_and_salt_in_the_first():
    world = World([full(4)], 4)
    admit(world.manager, world.request("r", 12, lora="L", salt="s"))
    (event,) = world.events()
    assert event.extra_keys == [("L", "s"), ("L",), ("L",)]
    assert event.lora_name == "L"


def test_the_first_chunk_of_mamba_align_has_one_hash_and_eight_tokens():
    """7.1 [run]: block size 4, the entry before the state is null."""
    world = World([full(4), mamba(4)], 4)
    request = world.request("r", 12, salt="s")
    admit(world.manager, request, 8)
    event = world.events()[1]
    assert event.group_idx == 1
    assert fields(event, "block_hashes", "kv_cache_spec_kind") == ([request.prefix_ids[1]], "mamba")
    assert event.token_ids == list(range(100, 108))
    # The salt belongs to the block at token 0, which is not registered here.
    assert event.extra_keys == [None]


def test_a_mask_of_two_in_four_gives_eight_hashes_for_64_tokens():
    """7.1 [run]: window 8 with blocks of 4, aligned to 16: blocks 2, 3 of every four are kept."""
    world = World([full(16), sliding(4, 8)], 4, num_blocks=60)
    admit(world.manager, world.request("r", 64))
    event = world.events()[1]
    assert (len(event.block_hashes), len(event.token_ids)) == (8, 64)
    assert fields(event, "block_size", "kv_cache_spec_sliding_window") == (4, 8)


def test_everything_masked_gives_an_event_without_hashes():
    """Q6, 7.1 [run]: retention 0, first chunk."""
    world = World([full(4), sliding(4, 8)], 4, retention_interval=0)
    admit(world.manager, world.request("r", 40), 8)
    event = world.events()[1]
    assert fields(event, "block_hashes", "extra_keys") == ([], None)
    assert event.token_ids == list(range(100, 108))


def test_removal_clearing_and_silence():
    world = World([full(4)], 4, num_blocks=4)
    first = world.request("r", 8)
    admit(world.manager, first)
    world.events()
    world.manager.free(first)
    assert world.events() == []  # freeing tells nothing
    second = world.request("s", 8)
    admit(world.manager, second)  # hits one block, computes the last again in a fresh one
    world.events()
    world.manager.free(second)
    world.manager.evict_blocks([1])
    assert world.events() == [
        BlockRemoved(block_hashes=[first.prefix_ids[0]], medium="GPU", group_idx=0)
    ]
    assert world.manager.reset_prefix_cache()
    assert world.events() == [AllBlocksCleared()]


def test_life_of_a_partial_entry():
    """C 9 [run]: stored, stored, removed, removed, stored, removed, stored."""
    world = World([full(16), sliding(4, 8)], 4)
    pool = world.manager.block_pool
    request = world.request("r", 16, salt="s")
    ids = request.prefix_ids
    (block_id,) = pool.get_new_blocks(1, 0)

    def partial(num_tokens):
        assert (
            pool.cache_partial_block("r", block_id, num_tokens, ids, 0, 16)
            == (ids[num_tokens // 4 - 1])
        )
        return world.events()

    def removed(i):
        return BlockRemoved(block_hashes=[ids[i]], medium="GPU", group_idx=0)

    (stored,) = partial(8)
    names = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "extra_keys")
    assert fields(stored, *names) == ([ids[1]], ids[0], [104, 105, 106, 107], 4, [None])
    (stored,) = partial(4)
    assert fields(stored, *names) == ([ids[0]], None, [100, 101, 102, 103], 4, [("s",)])
    assert partial(8) == partial(4) == []  # both are there already
    *gone, stored = partial(12)
    assert gone == [removed(1), removed(0)]
    assert fields(stored, *names) == ([ids[2]], ids[1], [108, 109, 110, 111], 4, [None])
    pool.cache_full_blocks("r", [block_id], 0, 1, request.prefix_ids_by(4), 0)
    gone, stored = world.events()
    assert gone == removed(2)
    assert fields(stored, *names) == ([ids[3]], None, list(range(100, 116)), 16, [("s",)])
    assert pool.get_cached_block(ids[3], [0]) == [block_id]
    assert [pool.get_cached_block(i, [0]) for i in ids[:3]] == [None] * 3


def test_digests_are_those_of_vllm():
    """Values of vLLM 0.25.1, asked as a black box: hash_block_tokens(sha256_cbor, ...), seed "0".

    Blocks [1, 2, 3, 2**31 - 1] with ("L", "salt"), then [5, 6, 7, 8] with ("L",).
    """
    tokens = [1, 2, 3, 2**31 - 1, 5, 6, 7, 8]
    content = RequestContent(lambda first, last: tokens[first:last], [0, 1], "L", "salt")
    hashes = Sha256Cbor(4, "0")
    assert hashes.none_hash.hex() == (
        "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e"
    )
    name = hashes.namer(content, 2)
    assert (name(0), name(1)) == (5514891401684545181, 18393100166333954594)


def test_digests_of_big_blocks_are_every_second_digest_of_small_ones():
    """2.5: no hash is made anew; the digests name prefixes, not blocks."""
    world = World([full(4), full(8)], 4, hashes=Sha256Cbor(4))
    admit(world.manager, world.request("r", 16))
    fine, coarse = world.events()
    assert coarse.block_hashes == fine.block_hashes[1::2]
    assert len(set(fine.block_hashes)) == 4


def test_another_seed_gives_other_digests():
    worlds = [World([full(4)], 4, hashes=Sha256Cbor(4, seed)) for seed in "01"]
    for world in worlds:
        admit(world.manager, world.request("r", 8))
    first, second = (world.events()[0].block_hashes for world in worlds)
    assert not set(first) & set(second)


@pytest.mark.parametrize("change", ["tokens", "salt"])
def test_another_first_block_changes_every_digest(change):
    hashes = Sha256Cbor(2)
    left = RequestContent(lambda a, b: [1, 2, 3, 4][a:b], [0, 1])
    right = RequestContent(
        lambda a, b: ([9, 2, 3, 4] if change == "tokens" else [1, 2, 3, 4])[a:b],
        [2, 3],
        cache_salt="s" if change == "salt" else None,
    )
    hashes.namer(left, 2)
    name = hashes.namer(right, 2)
    assert len({name(i) for i in range(4)}) == 4
