"""Every free-queue policy keeps the pool's contract, whatever its order."""

from __future__ import annotations

import random

import pytest

from sim.core.block_pool import BlockPool
from sim.core.eviction import EVICTION_POLICIES
from sim.errors import InvariantError

NUM_BLOCKS = 40


@pytest.fixture(params=list(EVICTION_POLICIES))
def policy(request):
    return EVICTION_POLICIES[request.param]


def test_new_queue_holds_the_given_blocks_each_once(policy):
    queue = policy(range(1, NUM_BLOCKS), NUM_BLOCKS)
    assert sorted(queue.get_all_free_blocks()) == list(range(1, NUM_BLOCKS))
    assert queue.num_free_blocks == NUM_BLOCKS - 1


def test_taking_hands_out_what_the_snapshot_shows(policy):
    queue = policy(range(1, NUM_BLOCKS), NUM_BLOCKS)
    expected = queue.get_all_free_blocks()
    assert queue.popleft_n(0) == []
    assert queue.popleft_n(7) == expected[:7]
    assert queue.get_all_free_blocks() == expected[7:]


@pytest.mark.parametrize("count", [-1, NUM_BLOCKS])
def test_impossible_counts_are_refused_and_change_nothing(policy, count):
    queue = policy(range(1, NUM_BLOCKS), NUM_BLOCKS)
    before = queue.get_all_free_blocks()
    with pytest.raises(ValueError):
        queue.popleft_n(count)
    assert queue.get_all_free_blocks() == before


def test_removing_a_block_that_is_not_there_is_found(policy):
    queue = policy(range(1, NUM_BLOCKS), NUM_BLOCKS)
    taken = queue.popleft_n(3)
    queue.append_n(taken)
    queue.remove(taken[:1])
    with pytest.raises(InvariantError):
        queue.remove(taken[:1])


@pytest.mark.parametrize("seed", range(20))
def test_members_are_kept_exactly_under_random_use(policy, seed):
    rng = random.Random(seed)
    queue = policy(range(1, NUM_BLOCKS), NUM_BLOCKS)
    members, cached, taken = set(range(1, NUM_BLOCKS)), set(), []
    for _ in range(400):
        action = rng.choice(["pop", "remove", "prepend", "append"])
        if action == "pop":
            blocks = queue.popleft_n(rng.randint(0, min(5, len(members))))
        elif action == "remove":
            blocks = rng.sample(sorted(cached), rng.randint(0, min(3, len(cached))))
            queue.remove(blocks)
        else:
            rng.shuffle(taken)
            count = rng.randint(0, min(4, len(taken)))
            blocks, taken = taken[:count], taken[count:]
            (queue.prepend_n if action == "prepend" else queue.append_n)(blocks)
            members |= set(blocks)
            cached |= set(blocks) if action == "append" else set()
            continue
        members -= set(blocks)
        cached -= set(blocks)
        taken += blocks
        order = queue.get_all_free_blocks()
        assert set(order) == members
        assert len(order) == len(members) == queue.num_free_blocks


def test_pool_runs_on_the_policy(policy):
    pool = BlockPool(NUM_BLOCKS, free_queue=policy)
    blocks = pool.get_new_blocks(10, 0)
    for block_id in blocks[:5]:
        pool.register(block_id, 0, prefix_id=block_id)
    pool.free_blocks(blocks)
    pool.touch(blocks[2:4], 0)
    assert pool.get_num_free_blocks() == NUM_BLOCKS - 1 - 2
    assert not set(blocks[2:4]) & set(pool.get_new_blocks(pool.get_num_free_blocks(), 0))
