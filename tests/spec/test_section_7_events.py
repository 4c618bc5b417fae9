"""KV events and residency. Source: spec/manager.md 7; the encoding has tests with the pool's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import repeat
from math import gcd, lcm

import pytest

from sim.core.block_metrics import BlockMetrics
from sim.core.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventLog, replay
from sim.core.request_content import RequestContent
from tests.helpers import Prefixes, admit, allocate, full, make_kv_cache_config, mamba, sliding
from tests.spec.worlds import SIM, chunked, manager_of, rswa


class Told:
    """A manager whose events are collected; tokens of request r are (its number, position)."""

    def __init__(self, *specs, num_blocks=60, salt=None, lora=None, **settings):
        sizes = [spec.block_size for spec in specs]
        config = make_kv_cache_config(specs, num_blocks=num_blocks)
        self.content: dict[str, RequestContent] = {}
        self.log = KVEventLog(config, gcd(*sizes), self.content.__getitem__)
        self.manager = SIM.KVCacheManager(
            config, 8192, lcm(*sizes), gcd(*sizes), observer=self.log, **settings
        )
        self.prefixes = Prefixes(gcd(*sizes))
        self.salt, self.lora = salt, lora

    def request(self, name, tokens):
        tokens = list(tokens)
        request = self.prefixes.request(name, tokens)
        self.content[name] = RequestContent(
            lambda first, last: tokens[first:last], request.prefix_ids, self.lora, self.salt
        )
        return request

    def take(self):
        return self.log.take_events()


def sizes_of(events):
    """Return (group, hashes, tokens) of stored events."""
    return [(e.group_idx, len(e.block_hashes), len(e.token_ids)) for e in events]


# -- what an event says about its range ---------------------------------------------------------
def test_first_chunk_of_a_recurrent_group_has_one_hash_for_eight_tokens():
    told = Told(full(4), mamba(4))
    allocate(told.manager, told.request("a", range(18)), 8)
    assert sizes_of(told.take()) == [(0, 2, 8), (1, 1, 8)]


def test_two_of_every_four_window_blocks_are_eight_hashes_for_64_tokens():
    told = Told(full(16), sliding(4, 8))
    allocate(told.manager, told.request("a", range(64)), 64)
    assert sizes_of(told.take()) == [(0, 4, 64), (1, 8, 64)]


def test_an_event_without_a_hash_is_sent_all_the_same():
    """Retention 0, first chunk: nothing of the window is kept; no extra keys instead of []."""
    told = Told(full(4), sliding(4, 8), retention_interval=0)
    allocate(told.manager, told.request("a", range(50)), 20)
    events = told.take()
    assert sizes_of(events) == [(0, 5, 20), (1, 0, 20)]
    assert events[1].token_ids == list(range(20))
    assert events[1].extra_keys is None
    assert events[0].extra_keys == [None] * 5


def test_leading_nulls_of_a_hit_are_outside_the_range():
    told = Told(full(4), sliding(4, 8))
    admit(told.manager, told.request("a", range(41)))
    told.take()
    second = told.request("b", [*range(40), *"wxyzuvwx"])
    assert admit(told.manager, second)[0] == 40
    assert sizes_of(told.take()) == [(0, 2, 8), (1, 2, 8)]


def test_leading_nulls_of_an_external_load_are_outside_the_range():
    """39 external tokens: S = 32, so the window's range begins at its ninth block."""
    told = Told(full(4), sliding(4, 8))
    request = told.request("a", range(40))
    told.manager.allocate_slots(
        request, 0, num_external_computed_tokens=39, delay_cache_blocks=True
    )
    assert told.take() == []
    told.manager.cache_blocks(request, 39)
    assert sizes_of(told.take()) == [(0, 9, 36), (1, 1, 4)]


def test_one_event_per_group_and_call_with_the_parent_of_its_range():
    told = Told(full(4))
    request = told.request("a", range(18))
    allocate(told.manager, request, 8)
    (first,) = told.take()
    allocate(told.manager, request, 10)
    (second,) = told.take()
    assert first.parent_block_hash is None
    assert second.parent_block_hash == first.block_hashes[-1]
    assert (first.token_ids, second.token_ids) == (list(range(8)), list(range(8, 16)))
    assert (second.block_size, second.medium, second.lora_id) == (4, "GPU", None)


@pytest.mark.parametrize(
    ("spec", "kind", "window"),
    [
        (full(4), "full_attention", None),
        (replace(full(4), sliding_window=8), "full_attention", None),
        (rswa(4, 8), "full_attention", None),
        (sliding(4, 8), "sliding_window", 8),
        (chunked(4, 8), "chunked_local_attention", None),
    ],
)
def test_kinds(spec, kind, window):
    """A window is told for sliding-window specs only."""
    told = Told(spec)
    allocate(told.manager, told.request("a", range(9)), 9)
    (event,) = told.take()
    assert (event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window) == (kind, window)


# -- extra keys ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("lora", "salt", "keys"),
    [
        (None, None, [None, None, None]),
        ("L", "s", [("L", "s"), ("L",), ("L",)]),
        ("L", None, [("L",)] * 3),
        (None, "s", [("s",), None, None]),
        (None, "", [None, None, None]),
    ],
)
def test_extra_keys_in_their_order(lora, salt, keys):
    """2.4: the adapter in every block, then the salt in the block at token 0 only, if truthy."""
    told = Told(full(4), lora=lora, salt=salt)
    allocate(told.manager, told.request("a", range(14)), 14)
    (event,) = told.take()
    assert event.extra_keys == keys
    assert event.lora_name == lora


def test_extra_keys_are_computed_at_the_groups_block_boundaries():
    told = Told(full(16), sliding(4, 100), lora="L", salt="s")
    allocate(told.manager, told.request("a", range(32)), 32)
    by_group = {event.group_idx: event.extra_keys for event in told.take()}
    assert by_group == {0: [("L", "s"), ("L",)], 1: [("L", "s")] + [("L",)] * 7}


# -- partial entries ----------------------------------------------------------------------------
def test_a_partial_entry_tells_of_one_hash_block():
    """8 tokens of a block of 16, hash blocks of 4: tokens 4..7, the parent of 4 tokens."""
    told = Told(full(16), sliding(4, 8))
    request = told.request("a", range(18))
    pool = told.manager.block_pool
    (block_id,) = pool.get_new_blocks(1, 0)
    pool.cache_partial_block("a", block_id, 8, request.prefix_ids, 0, 16)
    pool.cache_partial_block("a", block_id, 4, request.prefix_ids, 0, 16)
    eight, four = told.take()
    assert (eight.token_ids, four.token_ids) == ([4, 5, 6, 7], [0, 1, 2, 3])
    assert (eight.block_size, len(eight.block_hashes), eight.extra_keys) == (4, 1, [None])
    assert eight.parent_block_hash == four.block_hashes[0]
    assert four.parent_block_hash is None


# -- when events are sent -----------------------------------------------------------------------
def test_freeing_and_hits_are_silent_and_reuse_removes_one_key_per_event():
    told = Told(full(4), num_blocks=6)
    request = told.request("a", range(9))
    allocate(told.manager, request, 9)
    stored = told.take()[0].block_hashes
    told.manager.free(request)
    again = told.request("b", range(9))
    told.manager.get_computed_blocks(again)
    assert told.take() == []
    other = told.request("c", [*"uvwxyzabcdefghijk"])
    allocate(told.manager, other, 17)  # all five blocks: tail of the cached ones first
    removed = [event for event in told.take() if isinstance(event, BlockRemoved)]
    assert [event.block_hashes for event in removed] == [[stored[1]], [stored[0]]]
    assert {(event.medium, event.group_idx) for event in removed} == {("GPU", 0)}


def test_removals_precede_the_stored_event_of_the_same_call():
    told = Told(full(4), num_blocks=4)
    first = told.request("a", range(9))
    allocate(told.manager, first, 9)
    told.manager.free(first)
    told.take()
    allocate(told.manager, told.request("b", [*"uvwxyzabcdef"]), 12)
    assert [type(event) for event in told.take()] == [BlockRemoved, BlockRemoved, BlockStored]


def test_a_reset_is_one_event():
    told = Told(full(4))
    request = told.request("a", range(9))
    allocate(told.manager, request, 9)
    told.take()
    assert told.manager.reset_prefix_cache() is False
    assert told.take() == []
    told.manager.free(request)
    assert told.manager.reset_prefix_cache() is True
    assert told.take() == [AllBlocksCleared()]


def test_duplicates_are_stored_twice_and_removed_twice():
    """A consumer must count: the index has a key until its last block is gone."""
    told = Told(full(4), num_blocks=6)
    for name in "ab":
        request = told.request(name, range(5))
        request.skip_reading_prefix_cache = True
        allocate(told.manager, request, 5)
    index: Counter = Counter()
    replay(told.take(), index)
    assert list(index.values()) == [2]
    for left, block_id in ((1, 1), (0, 3)):
        told.manager.evict_blocks({block_id})
        replay(told.take(), index)
        assert sum(index.values()) == left


def test_caching_off_sends_nothing():
    """Invariant 8."""
    told = Told(full(4), enable_caching=False)
    request = told.request("a", range(9))
    allocate(told.manager, request, 9)
    told.manager.free(request)
    allocate(told.manager, told.request("b", range(9)), 9)
    assert told.take() == []


# -- 7.2 residency ------------------------------------------------------------------------------
def followed(sample_rate=1.0, draws=None, **settings):
    """Return metrics in front of a manager of blocks of 4, and the manager."""
    draws = iter(draws) if draws else repeat(0.0)
    metrics = BlockMetrics(sample_rate, lambda: next(draws))
    return metrics, manager_of(full(4), num_blocks=3, observer=metrics, **settings)


def test_lifetime_idle_time_and_reuse_gaps_of_a_block():
    """Born at 0, hit at 10, 13, 17, 18 and 30, handed out at 40: the last four hits are kept."""
    metrics, manager = followed()
    prefixes = Prefixes(4)
    first = prefixes.request("a", range(5))
    admit(manager, first)
    manager.free(first)
    for number, now in enumerate((10, 13, 17, 18, 30)):
        metrics.at(now)
        again = prefixes.request(f"b{number}", range(5))
        assert admit(manager, again)[0] == 4
        manager.free(again)
    metrics.drain_events()
    metrics.at(40)
    admit(manager, prefixes.request("c", "uvwxyzab"))
    # The cached block is the last of two; the other one was born again with each request.
    assert metrics.drain_events() == [(10, 10, ()), (40, 10, (4, 1, 12))]


def test_a_block_evicted_by_id_ends_its_residence_even_in_use():
    metrics, manager = followed()
    admit(manager, Prefixes(4).request("a", range(5)))
    metrics.at(7)
    manager.evict_blocks({1, 2})
    assert metrics.drain_events() == [(7, 7, ()), (7, 7, ())]


def test_allocations_are_sampled():
    """random() < rate: of two allocations the second is followed."""
    metrics, manager = followed(0.5, [0.5, 0.49])
    admit(manager, Prefixes(4).request("a", range(5)))
    metrics.at(7)
    manager.evict_blocks({1, 2})
    assert metrics.drain_events() == [(7, 7, ())]


def test_a_reset_forgets_ends_that_were_not_drained():
    metrics, manager = followed()
    request = Prefixes(4).request("a", range(5))
    admit(manager, request)
    manager.evict_blocks({1})
    manager.free(request)
    assert manager.reset_prefix_cache() is True
    assert metrics.drain_events() == []
    admit(manager, Prefixes(4).request("b", "uvwxyzab"))
    assert metrics.drain_events() == []


@pytest.mark.parametrize("rate", [0, -0.1, 1.1])
def test_a_sample_rate_is_a_share(rate):
    with pytest.raises(ValueError):
        BlockMetrics(rate, lambda: 0.0)
