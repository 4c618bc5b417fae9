"""Every kind of damage, done to a live manager, is found and named.

The table: what is done -> how -> the words that ``check_integrity`` must say about it. Each is done
at several moments of random runs; the same manager is in order just before.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sim.core.block_pool import PartialKeys
from sim.core.integrity import check_integrity
from sim.errors import InvariantError
from tests.faults.linked_queue import LinkedQueue
from tests.faults.live import Live

MOMENTS = [(1, 9), (2, 25), (3, 60)]
FAULTS: dict[str, tuple[Callable[[Live], None], str]] = {}


def fault(name: str, words: str):
    """Enter a fault: its injector and a pattern of the message."""

    def enter(injector: Callable[[Live], None]):
        FAULTS[name] = injector, words
        return injector

    return enter


# -- where to do damage --------------------------------------------------------------------------
def held(live: Live, group_id: int | None = None) -> int:
    """A block that exactly one table names."""
    groups = range(3) if group_id is None else [group_id]
    for g in groups:
        for table in live.single(g).req_to_blocks.values():
            for block_id in table:
                if block_id and live.pool.ref_cnt[block_id] == 1:
                    return block_id
    raise AssertionError("nothing is held by one request")


def table_of(live: Live, block_id: int) -> list[int]:
    """The table that names a block."""
    tables = (t for g in range(3) for t in live.single(g).req_to_blocks.values())
    return next(table for table in tables if block_id in table)


def free_blocks(live: Live) -> list[int]:
    return live.pool.free_block_queue.get_all_free_blocks()


def cached_free(live: Live) -> int:
    return next(b for b in free_blocks(live) if live.pool.prefix_id[b] >= 0)


def cached(live: Live) -> tuple[int, int, int]:
    """Block, group and identity of an entry that is alone under its key."""
    pool = live.pool
    for group_id, index in enumerate(pool.cached_blocks):
        for prefix_id, block_id in index.items():
            if prefix_id not in pool.duplicates[group_id]:
                return block_id, group_id, prefix_id
    raise AssertionError("nothing is cached")


def clean_held(live: Live) -> int:
    """A block of group 0 that is held and caches nothing."""
    blocks = [b for table in live.single(0).req_to_blocks.values() for b in table]
    return next(b for b in blocks if b and live.pool.prefix_id[b] < 0)


def with_secondary_key(live: Live) -> tuple[int, int]:
    """Give a held block a key at 12 tokens and one at 4; return the block and the latter."""
    pool = live.pool
    block_id = clean_held(live)
    ids = [10**6 + i for i in range(8)]
    assert pool.cache_partial_block("x", block_id, 12, ids, 0, 8) == ids[2]
    assert pool.cache_partial_block("x", block_id, 4, ids, 0, 8) == ids[0]
    check_integrity(live.manager)
    return block_id, ids[0]


# -- holders -------------------------------------------------------------------------------------
@fault("double free", r"block \d+ is free but 1 tables name it")
def free_a_block_that_its_request_still_names(live: Live) -> None:
    live.pool.free_blocks([held(live)])


@fault("double free of a shared block", r"ref_cnt of block \d+ = its holders: 1 is not 2")
def free_a_block_twice_for_one_of_two_holders(live: Live) -> None:
    block_id = held(live, 0)
    other = next(t for t in live.single(0).req_to_blocks.values() if block_id not in t)
    other.append(block_id)
    live.pool.ref_cnt[block_id] += 1
    check_integrity(live.manager)
    live.pool.free_blocks([block_id])


@fault("leaked block", r"block \d+ is leaked: no holder, and not in the free queue")
def lose_a_block_between_table_and_queue(live: Live) -> None:
    block_id = held(live)
    table = table_of(live, block_id)
    table[table.index(block_id)] = 0
    live.pool.ref_cnt[block_id] = 0


@fault("leaked holder", r"ref_cnt of block \d+ = its holders: 1 is not 0")
def null_an_entry_without_freeing_it(live: Live) -> None:
    block_id = held(live)
    table = table_of(live, block_id)
    table[table.index(block_id)] = 0


@fault("ref count one too high", r"ref_cnt of block \d+ = its holders: 2 is not 1")
def count_a_holder_too_many(live: Live) -> None:
    live.pool.ref_cnt[held(live)] += 1


@fault("ref count one too low", r"ref_cnt of block \d+ = its holders: 0 is not 1")
def count_a_holder_too_few(live: Live) -> None:
    live.pool.ref_cnt[held(live)] -= 1


@fault("ref count of a free block", r"ref_cnt of block \d+ = its holders: 1 is not 0")
def count_a_holder_of_a_free_block(live: Live) -> None:
    live.pool.ref_cnt[free_blocks(live)[0]] += 1


@fault("the null block looks free", r"the null block could look free: ref_cnt 0")
def free_the_null_block(live: Live) -> None:
    live.pool.ref_cnt[0] = 0


# -- tables --------------------------------------------------------------------------------------
@fault("table names a free block", r"block \d+ is free but 1 tables name it")
def put_a_free_block_into_a_table(live: Live) -> None:
    block_id = free_blocks(live)[-1]
    next(iter(live.single(0).req_to_blocks.values())).append(block_id)
    live.pool.group_id[block_id] = 0


@fault("block twice in a table", r"distinct blocks of request r\d+, group \d = blocks: \d+ is not")
def repeat_a_block_in_its_table(live: Live) -> None:
    block_id = held(live)
    table_of(live, block_id).append(block_id)
    live.pool.ref_cnt[block_id] += 1


@fault("two groups share a block", r"groups 0 and 1 share block \d+")
def give_a_block_to_a_second_group(live: Live) -> None:
    block_id = held(live, 0)
    next(iter(live.single(1).req_to_blocks.values())).append(block_id)
    live.pool.ref_cnt[block_id] += 1


@fault("wrong group of a held block", r"recorded group of block \d+ = its holder's: 2 is not 0")
def forget_whose_a_block_is(live: Live) -> None:
    live.pool.group_id[held(live, 0)] = 2


@fault("block outside the pool in a table", r"blocks of request r\d+, group 0 outside the pool")
def name_a_block_that_does_not_exist(live: Live) -> None:
    next(iter(live.single(0).req_to_blocks.values())).append(10**6)


@fault("progress beyond the table", r"num_cached_block of request r\d+, group 0 is \d+, its table")
def count_more_cached_blocks_than_entries(live: Live) -> None:
    single = live.single(0)
    request_id, table = next(iter(single.req_to_blocks.items()))
    single.num_cached_block[request_id] = len(table) + 1


@fault("progress without a table", r"num_cached_block of request gone, .* its table has 0 entries")
def keep_the_progress_of_a_request_that_left(live: Live) -> None:
    live.single(1).num_cached_block["gone"] = 1


@fault("state without an entry", r"the last state of request r\d+, group 2 is at 500, its table")
def point_at_a_state_beyond_the_table(live: Live) -> None:
    single = live.single(2)
    single.last_state_block_idx[next(iter(single.req_to_blocks))] = 500


# -- the free queue ------------------------------------------------------------------------------
@fault("repeated member at the front", r"blocks are in the free queue more than once: \[\d+\]")
def queue_a_free_block_again(live: Live) -> None:
    live.pool.free_block_queue.prepend_n(free_blocks(live)[2:3])


@fault("queue goes round again", r"the free queue runs in a circle: more than 90 members")
def put_the_whole_queue_behind_itself(live: Live) -> None:
    queue = live.pool.free_block_queue
    while len(free_blocks(live)) <= 90:
        queue._front[:0] = free_blocks(live)


@fault("lost member", r"block \d+ is leaked: no holder, and not in the free queue")
def lose_a_queued_block(live: Live) -> None:
    live.pool.free_block_queue.remove([cached_free(live)])


@fault("member lost under the counter", r"the queue's list has \d+ members, not \d+")
def lose_a_queued_block_without_counting(live: Live) -> None:
    queue = live.pool.free_block_queue
    queue._back[queue._position[cached_free(live)] - queue._base] = 0


@fault("queue counter one too high", r"the queue has \d+ members, not \d+")
def count_a_free_block_too_many(live: Live) -> None:
    live.pool.free_block_queue.num_free_blocks += 1


@fault("queue counter one too low", r"the queue has \d+ members, not \d+")
def count_a_free_block_too_few(live: Live) -> None:
    live.pool.free_block_queue.num_free_blocks -= 1


@fault("live counter of the list", r"the queue's list has \d+ members, not \d+")
def count_a_cached_member_too_many(live: Live) -> None:
    live.pool.free_block_queue._live += 1


@fault("position of a member", r"the queue has lost the positions of blocks \[\d+\]")
def forget_where_a_member_stands(live: Live) -> None:
    live.pool.free_block_queue._position[cached_free(live)] -= 1


@fault("head behind the list", r"the queue's head \d+ is outside its list of \d+")
def move_the_head_behind_the_list(live: Live) -> None:
    queue = live.pool.free_block_queue
    live.pool.get_new_blocks(len(queue._front), 0)
    queue._head = len(queue._back) + 1


@fault("tombstone on the stack", r"the null block is in the free queue")
def put_a_tombstone_on_the_stack(live: Live) -> None:
    live.pool.free_block_queue._front.append(0)


@fault("null block queued", r"the null block is in the free queue")
def queue_the_null_block(live: Live) -> None:
    live.pool.free_block_queue.prepend_n([0])


@fault("foreign block queued", r"free blocks outside the pool: \[90\] is not \[\]")
def queue_a_block_that_does_not_exist(live: Live) -> None:
    live.pool.free_block_queue.prepend_n([90])


# -- the index -----------------------------------------------------------------------------------
@fault("wrong key", r"the index of group \d leads from \d+ to block \d+, whose identity is \d+")
def register_a_block_under_another_identity(live: Live) -> None:
    block_id, group_id, prefix_id = cached(live)
    del live.pool.cached_blocks[group_id][prefix_id]
    live.pool.cached_blocks[group_id][10**6] = block_id


@fault("identity changed", r"the index of group \d leads from \d+ to block \d+, whose identity is")
def change_what_a_block_says_it_is(live: Live) -> None:
    live.pool.prefix_id[cached(live)[0]] = 10**6


@fault("entry of a block without identity", r"leads from \d+ to block \d+, whose identity is -1")
def forget_the_identity_of_a_cached_block(live: Live) -> None:
    live.pool.prefix_id[cached(live)[0]] = -1


@fault("identity without entry", r"the index of group \d lacks block \d+, whose identity is \d+")
def drop_an_entry(live: Live) -> None:
    _, group_id, prefix_id = cached(live)
    del live.pool.cached_blocks[group_id][prefix_id]


@fault("entry of the wrong group", r"block \d+ of group \d is in the index of group \d")
def move_an_entry_to_another_group(live: Live) -> None:
    block_id, group_id, prefix_id = cached(live)
    del live.pool.cached_blocks[group_id][prefix_id]
    other = next(
        g for g in range(3) if g != group_id and prefix_id not in live.pool.cached_blocks[g]
    )
    live.pool.cached_blocks[other][prefix_id] = block_id


@fault("entry outside the pool", r"the index of group \d names block 90, outside the pool")
def lead_to_a_block_that_does_not_exist(live: Live) -> None:
    live.pool.cached_blocks[0][10**6] = 90


@fault("null block cached", r"the null block is cached as 1000000 in group 1")
def cache_the_null_block(live: Live) -> None:
    live.pool.cached_blocks[1][10**6] = 0
    live.pool.prefix_id[0] = 10**6


@fault("null block has an identity", r"the null block has an identity: 7 is not -1")
def name_the_null_block(live: Live) -> None:
    live.pool.prefix_id[0] = 7


@fault("duplicates without a first", r"duplicates of 1000000 have a first: False is not True")
def list_duplicates_of_nothing(live: Live) -> None:
    live.pool.duplicates[0][10**6] = {cached(live)[0]: None}


@fault("empty duplicates", r"duplicates of \d+ are some: False is not True")
def leave_an_empty_list_of_duplicates(live: Live) -> None:
    _, group_id, prefix_id = cached(live)
    live.pool.duplicates[group_id][prefix_id] = {}


@fault("duplicate of itself", r"\(block, identity\) that the index has more than once: \[\(\d+,")
def list_a_block_as_its_own_duplicate(live: Live) -> None:
    block_id, group_id, prefix_id = cached(live)
    live.pool.duplicates[group_id][prefix_id] = {block_id: None}


@fault("something cached with caching off", r"entries of the index with caching off: \d+ is not 0")
def turn_caching_off_too_late(live: Live) -> None:
    live.pool.enable_caching = False


# -- partial entries -----------------------------------------------------------------------------
@fault("secondary key without entry", r"the index lacks the secondary key \d+ of block \d+")
def drop_the_entry_of_a_secondary_key(live: Live) -> None:
    _, prefix_id = with_secondary_key(live)
    del live.pool.cached_blocks[0][prefix_id]


@fault("secondary key led elsewhere", r"the index lacks the secondary key \d+ of block \d+")
def lead_a_secondary_key_to_another_block(live: Live) -> None:
    block_id, prefix_id = with_secondary_key(live)
    other = next(b for b in live.pool.cached_blocks[0].values() if b != block_id)
    live.pool.cached_blocks[0][prefix_id] = other
    live.pool.partial_keys[other] = PartialKeys(0, [prefix_id])


@fault("secondary key forgotten", r"leads from \d+ to block \d+, whose identity is \d+")
def forget_a_secondary_key(live: Live) -> None:
    block_id, _ = with_secondary_key(live)
    live.pool.partial_keys[block_id].secondary.clear()


@fault("partial keys without identity", r"block \d+ has partial keys but no identity")
def keep_partial_keys_of_a_clean_block(live: Live) -> None:
    live.pool.partial_keys[clean_held(live)] = PartialKeys(4)


@fault("empty partial keys", r"partial keys of block \d+ are empty")
def keep_empty_partial_keys(live: Live) -> None:
    live.pool.partial_keys[cached(live)[0]] = PartialKeys()


@fault("primary also secondary", r"distinct keys of block \d+ = keys: 1 is not 2")
def repeat_the_primary_key(live: Live) -> None:
    block_id, _, prefix_id = cached(live)
    live.pool.partial_keys[block_id] = PartialKeys(0, [prefix_id])


# -- counters ------------------------------------------------------------------------------------
@fault("held counter", r"held blocks by group = counters: \[[\d, ]+\] is not \[[\d, ]+\]")
def count_a_held_block_too_many(live: Live) -> None:
    live.pool.held_by_group[1] += 1


@fault("cached-free counter", r"cached free blocks by group = counters: \[[\d, ]+\] is not")
def count_a_cached_free_block_too_few(live: Live) -> None:
    live.pool.cached_free_by_group[2] -= 1


@fault("permanent counter", r"permanent blocks = their counter: 0 is not 1")
def count_a_permanent_block(live: Live) -> None:
    live.pool.num_permanent_blocks += 1


# -- the test ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("seed", "num_steps"), MOMENTS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found_and_named(name, seed, num_steps):
    live = Live(seed).run(num_steps)
    check_integrity(live.manager)
    injector, words = FAULTS[name]
    injector(live)
    with pytest.raises(InvariantError) as caught:
        check_integrity(live.manager)
    assert re.search(words, str(caught.value)), str(caught.value)


def test_links_that_run_in_a_circle_do_not_hang_the_check():
    live = Live(4, free_queue=LinkedQueue).run(20)
    check_integrity(live.manager)
    queue = live.pool.free_block_queue
    members = list(queue)
    queue.after[members[-1]] = members[1]
    with pytest.raises(InvariantError, match="runs in a circle: more than 90 members"):
        check_integrity(live.manager)


def test_blocks_whose_free_is_deferred_are_holders_until_they_are_freed():
    live = Live(5).run(20)
    request = next(
        r for r in live.scheduler.running if any(live.manager.get_block_ids(r.request_id))
    )
    blocks = live.manager.pop_blocks_for_free(request)
    with pytest.raises(InvariantError, match="ref_cnt of block"):
        check_integrity(live.manager)
    check_integrity(live.manager, deferred_frees=blocks)
    live.pool.free_blocks(blocks[::-1])
    check_integrity(live.manager)


def test_a_double_free_is_refused_at_once_and_changes_nothing():
    live = Live(6).run(20)
    victim = free_blocks(live)[3]
    before = free_blocks(live), list(live.pool.ref_cnt)
    with pytest.raises(InvariantError, match=f"block {victim} is freed but has no holder"):
        live.pool.free_blocks([victim])
    assert (free_blocks(live), list(live.pool.ref_cnt)) == before
