"""The pool and its free queue alone, against lists and dicts."""

from __future__ import annotations

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sim.core.block_pool import BlockPool
from sim.core.eviction.lru import FreeKVCacheBlockQueue
from tests import reference
from tests.helpers import EventLog
from tests.properties.worlds import Choices, machine_settings

NUM_GROUPS = 2
NUM_NAMES = 6
# Identities of prefixes that end inside a block: hash blocks of 4, blocks of 16.
PARTIAL_NAMES = range(NUM_NAMES, NUM_NAMES + 3)


class PoolMachine(RuleBasedStateMachine):
    """Blocks are taken, registered, touched, freed and evicted in any legal order."""

    @initialize(num_blocks=st.integers(1, 40), caching=st.sampled_from([True, True, True, False]))
    def build(self, num_blocks, caching):
        self.logs = EventLog(), EventLog()
        self.pools = (
            reference.BlockPool(num_blocks, NUM_GROUPS, caching, self.logs[0], 4),
            BlockPool(num_blocks, NUM_GROUPS, caching, self.logs[1], hash_block_size=4),
        )
        self.caching = caching
        self.held: list[int] = []  # one entry for each holder

    @rule(script=st.binary(min_size=20, max_size=120))
    def calls(self, script):
        choices = Choices(script)
        while choices:
            getattr(self, choices.of(CALLS))(choices)
            self.they_agree()

    @rule()
    def reset(self):
        answers = [pool.reset_prefix_cache() for pool in self.pools]
        assert answers == [not self.held] * 2
        self.they_agree()

    @precondition(lambda self: self.held)
    @rule()
    def free_everything(self):
        self._free(self.held[::-1])
        self.they_agree()

    # -- calls ----------------------------------------------------------------------------
    def take(self, choices):
        count, group_id = choices.below(6), choices.below(NUM_GROUPS)
        if count > self.pools[0].get_num_free_blocks():
            for pool in self.pools:
                with pytest.raises(ValueError):
                    pool.get_new_blocks(count, group_id)
            return
        taken = [pool.get_new_blocks(count, group_id) for pool in self.pools]
        note(f"take {count}: {taken[0]}")
        assert taken[1] == taken[0]
        self.held += taken[0]

    def register(self, choices):
        naive = self.pools[0]
        free_of_content = sorted(
            {
                b
                for b in self.held
                if naive.blocks[b].key is None or naive.blocks[b].num_tokens is not None
            }
        )
        if not (self.caching and free_of_content):
            return
        block_id, name = choices.of(free_of_content), choices.below(NUM_NAMES)
        for pool in self.pools:
            pool.register(block_id, naive.blocks[block_id].group_id, name)

    def register_partial(self, choices):
        if not (self.caching and self.held):
            return
        block_id, quarters = choices.of(self.held), 1 + choices.below(3)
        note(f"partial {block_id}: {4 * quarters}")
        group_id = self.pools[0].blocks[block_id].group_id
        args = ("r", block_id, 4 * quarters, list(PARTIAL_NAMES), group_id, 16)
        answers = [pool.cache_partial_block(*args) for pool in self.pools]
        assert answers == [PARTIAL_NAMES[quarters - 1]] * 2

    def touch(self, choices):
        """Touch what a lookup finds; null entries may stand in between."""
        naive, group_id = self.pools[0], choices.below(NUM_GROUPS)
        wanted = [choices.below(PARTIAL_NAMES.stop) for _ in range(choices.below(4))]
        found = [naive.get_cached_block(name, [group_id]) for name in wanted]
        ids = list(dict.fromkeys(row[0] for row in found if row))
        note(f"touch {ids}")
        nulls = [0] * choices.below(3)
        for pool in self.pools:
            pool.touch(nulls + ids, group_id)
        self.held += ids

    def free(self, choices):
        chosen, left = [], list(self.held)
        for _ in range(min(len(left), choices.below(8))):
            block_id = left.pop(choices.below(len(left)))
            if block_id not in chosen:
                chosen.append(block_id)
        self._free(chosen[:2] + [0] * choices.below(2) + chosen[2:])

    def _free(self, ids):
        note(f"free {ids}")
        for block_id in filter(None, ids):
            self.held.remove(block_id)
        seen = list(dict.fromkeys(ids))
        again = [b for b in seen for _ in range(ids.count(b) - 1) if b]
        for batch in (seen, *([b] for b in again)):
            for pool in self.pools:
                pool.free_blocks(batch)

    def evict(self, choices):
        ids = sorted({choices.below(len(self.pools[0].blocks)) for _ in range(choices.below(4))})
        for pool in self.pools:
            pool.evict_blocks(ids)

    # -- what must hold ---------------------------------------------------------------------
    def they_agree(self):
        naive, real = self.pools
        assert real.free_block_queue.get_all_free_blocks() == naive.free_block_queue.ids
        assert list(real.ref_cnt)[1:] == [self.held.count(b.block_id) for b in naive.blocks[1:]]
        assert list(real.prefix_id) == naive.prefix_id
        assert real.num_cached_free == naive.num_cached_free
        assert list(real.held_by_group) == naive.held_by_group
        assert real.get_num_free_blocks() == naive.get_num_free_blocks()
        assert real.get_usage() == naive.get_usage()
        for name in range(PARTIAL_NAMES.stop):
            for groups in ([0], [1], [0, 1], [1, 0]):
                expected = naive.get_cached_block(name, groups)
                assert real.get_cached_block(name, groups) == expected
        assert self.logs[1].events == self.logs[0].events
        for log in self.logs:
            log.clear()


CALLS = (
    ["take"] * 4
    + ["register"] * 6
    + ["register_partial"] * 3
    + ["free"] * 4
    + ["touch"] * 3
    + ["evict"]
)

TestPool = PoolMachine.TestCase
TestPool.settings = machine_settings(100, 8)


class QueueMachine(RuleBasedStateMachine):
    """The queue against a list: the front takes any block, the back only what may be removed."""

    SIZE = 24

    @initialize()
    def build(self):
        self.queue = FreeKVCacheBlockQueue(range(1, self.SIZE), self.SIZE)
        self.expected = list(range(1, self.SIZE))
        self.outside: list[int] = []
        self.removable: set[int] = set()

    @rule(script=st.binary(min_size=10, max_size=150))
    def calls(self, script):
        choices = Choices(script)
        while choices:
            getattr(self, choices.of(["pop", "pop", "prepend", "append", "append", "remove"]))(
                choices
            )
            assert self.queue.get_all_free_blocks() == self.expected
            assert self.queue.num_free_blocks == len(self.expected)

    def pop(self, choices):
        count = choices.below(1 + min(6, len(self.expected)))
        taken = self.queue.popleft_n(count)
        assert list(taken) == self.expected[:count]
        self.expected = self.expected[count:]
        self.outside += taken
        self.removable -= set(taken)

    def _some(self, choices):
        count = choices.below(1 + min(5, len(self.outside)))
        return [self.outside.pop(choices.below(len(self.outside))) for _ in range(count)]

    def prepend(self, choices):
        ids = self._some(choices)
        self.queue.prepend_n(ids)
        self.expected = ids + self.expected

    def append(self, choices):
        ids = self._some(choices)
        self.queue.append_n(ids)
        self.expected = self.expected + ids
        self.removable |= set(ids)

    def remove(self, choices):
        members = sorted(self.removable)
        count = choices.below(1 + min(4, len(members)))
        ids = list(dict.fromkeys(choices.of(members) for _ in range(count)))
        self.queue.remove(ids)
        self.expected = [b for b in self.expected if b not in ids]
        self.outside += ids
        self.removable -= set(ids)


TestQueue = QueueMachine.TestCase
TestQueue.settings = machine_settings(50, 6)


@pytest.mark.parametrize("count", [-1, 4])
def test_the_queue_refuses_impossible_counts(count):
    queue = FreeKVCacheBlockQueue([1, 2, 3], 4)
    with pytest.raises(ValueError):
        queue.popleft_n(count)
    assert queue.get_all_free_blocks() == [1, 2, 3]
