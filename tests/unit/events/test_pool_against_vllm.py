"""Partial entries and their events: our pool against vLLM's own, where that is installed.

No code of the engine calls the primitive, so no run reaches it; here both pools get the same calls.
"""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from sim.core.block_hashes import Sha256Cbor
from sim.core.block_pool import BlockPool
from sim.core.kv_events import BlockRemoved, KVEventLog
from sim.core.request_content import RequestContent
from tests.helpers import full, make_kv_cache_config

HASH_BLOCK, BLOCK, NUM_BLOCKS, NUM_TOKENS = 4, 16, 12, 48
FIELDS = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
    "lora_name", "extra_keys", "group_idx",
)  # fmt: skip


class Twins:
    """Both pools, three requests of which two begin alike, and who holds what."""

    def __init__(self, seed: int, monkeypatch):
        theirs = pytest.importorskip("vllm.v1.core.block_pool", reason="vLLM is not installed")
        self.hashing = pytest.importorskip("vllm.v1.core.kv_cache_utils")
        self.digest = pytest.importorskip("vllm.utils.hashing").sha256_cbor
        monkeypatch.setenv("PYTHONHASHSEED", "0")
        self.hashing.init_none_hash(self.digest)
        self.rng = random.Random(seed)
        self.contents: dict[str, RequestContent] = {}
        config = make_kv_cache_config([full(BLOCK), full(HASH_BLOCK)], num_blocks=NUM_BLOCKS)
        hashes = Sha256Cbor(HASH_BLOCK, "0")
        self.log = KVEventLog(config, HASH_BLOCK, self.contents.__getitem__, hashes)
        self.ours = BlockPool(NUM_BLOCKS, 2, True, self.log, hash_block_size=HASH_BLOCK)
        self.theirs = theirs.BlockPool(NUM_BLOCKS, True, HASH_BLOCK, True)
        self.ids: dict[bytes, int] = {}
        first = list(range(NUM_TOKENS))
        texts = [first, first[:20] + [900 + i for i in first[20:]], [500 + i for i in first]]
        self.requests = [self.request(f"r{i}", text) for i, text in enumerate(texts)]

    def request(self, request_id: str, tokens: list[int]) -> SimpleNamespace:
        hashes: list[bytes] = []
        for start in range(0, NUM_TOKENS, HASH_BLOCK):
            block = tokens[start : start + HASH_BLOCK]
            parent = hashes[-1] if hashes else None
            hashes.append(self.hashing.hash_block_tokens(self.digest, parent, block, None))
        ids = [self.ids.setdefault(h, len(self.ids)) for h in hashes]
        self.contents[request_id] = RequestContent(lambda a, b: tokens[a:b], ids)
        return SimpleNamespace(
            request_id=request_id, block_hashes=hashes, all_token_ids=tokens, lora_request=None,
            mm_features=[], cache_salt=None, prompt_embeds=None, num_tokens=NUM_TOKENS,
            table=[], registered=set(), ids=ids,
        )  # fmt: skip

    # -- calls -----------------------------------------------------------------------------
    def take(self, request):
        if len(request.table) < NUM_TOKENS // BLOCK and self.ours.get_num_free_blocks():
            request.table += self.theirs.get_new_blocks(1)
            assert self.ours.get_new_blocks(1, 0) == [request.table[-1].block_id]

    def partial(self, request):
        if not request.table:
            return
        idx = self.rng.randrange(len(request.table))
        num_tokens = idx * BLOCK + HASH_BLOCK * self.rng.randrange(1, BLOCK // HASH_BLOCK)
        block = request.table[idx]
        key = self.theirs.cache_partial_block(request, block, num_tokens, 0, BLOCK)
        args = (request.request_id, block.block_id, num_tokens, request.ids, 0, BLOCK)
        assert self.ours.cache_partial_block(*args) == self.ids[self.hashing.get_block_hash(key)]

    def register(self, request):
        unregistered = sorted(set(range(len(request.table))) - request.registered)
        if not unregistered:
            return
        idx = self.rng.choice(unregistered)
        request.registered.add(idx)
        table = [block.block_id for block in request.table]
        coarse = request.ids[BLOCK // HASH_BLOCK - 1 :: BLOCK // HASH_BLOCK]
        self.theirs.cache_full_blocks(request, request.table, idx, idx + 1, BLOCK, 0)
        self.ours.cache_full_blocks(request.request_id, table, idx, idx + 1, coarse, 0)

    def free(self, request):
        self.theirs.free_blocks(request.table[::-1])
        self.ours.free_blocks([block.block_id for block in request.table[::-1]])
        request.table, request.registered = [], set()

    def evict(self, request):
        block_id = self.rng.randrange(1, NUM_BLOCKS)
        self.theirs.evict_blocks({block_id})
        self.ours.evict_blocks([block_id])
        for other in self.requests:
            ids = [block.block_id for block in other.table]
            other.registered -= {i for i, b in enumerate(ids) if b == block_id}

    # -- what must be equal -------------------------------------------------------------------
    def agree(self) -> int:
        """Compare queue, index and events; return how many events were stored."""
        order = [b.block_id for b in self.theirs.free_block_queue.get_all_free_blocks()]
        assert self.ours.free_block_queue.get_all_free_blocks() == order
        for block_hash, prefix_id in self.ids.items():
            found = self.theirs.get_cached_block(block_hash, [0])
            expected = found and [block.block_id for block in found]
            assert self.ours.get_cached_block(prefix_id, [0]) == expected
        return self._agree_on_events(self.log.take_events(), self.theirs.take_events())

    def _agree_on_events(self, ours, theirs) -> int:
        kinds = [[type(event).__name__ for event in events] for events in (ours, theirs)]
        assert kinds[0] == kinds[1]
        removed = [isinstance(event, BlockRemoved) for event in ours]
        # The primary key goes first, the order of the others is that of a set in vLLM.
        gone = [
            [e.block_hashes[0] for e, is_removed in zip(side, removed, strict=True) if is_removed]
            for side in (ours, theirs)
        ]
        assert Counter(gone[0]) == Counter(gone[1]) and gone[0][:1] == gone[1][:1]
        for mine, other, is_removed in zip(ours, theirs, removed, strict=True):
            for field in () if is_removed else FIELDS:
                assert getattr(mine, field) == getattr(other, field), field
        return len(ours) - sum(removed)


@pytest.mark.parametrize("seed", range(40))
def test_both_pools_answer_every_call_alike(seed, monkeypatch):
    twins = Twins(seed, monkeypatch)
    num_stored = 0
    for _ in range(60):
        call = twins.rng.choice(
            ["take", "partial", "partial", "partial", "register", "free"] * 2 + ["evict"]
        )
        getattr(twins, call)(twins.rng.choice(twins.requests))
        num_stored += twins.agree()
    assert num_stored > 0
