import random
from types import SimpleNamespace

import pytest

from sim.errors import InvariantError
from sim.metrics.waste import WastePartition, _num_leading_nulls
from sim.tables import PARTS

from .slow_waste import FakeManager, make_group, make_manager, make_pool, slow_sample

BLOCK = 96  # bytes of a block in all examples below


def requests_of(computed):
    return {name: SimpleNamespace(num_computed_tokens=n) for name, n in computed.items()}


def parts_of(managers, pool, computed, *, num_blocks, memory=None):
    groups = [manager.group for manager in managers]
    partition = WastePartition(groups, num_blocks, BLOCK, memory or num_blocks * BLOCK)
    sample = partition.sample(make_manager(managers, pool), requests_of(computed))
    assert all(type(value) is int for value in sample)
    assert sum(sample) == partition.kv_memory_bytes
    return {name: value for name, value in zip(PARTS, sample, strict=True) if value}


def full_group(**changes):
    return make_group(**{"block_size": 4, "slot_bytes": 20, "page_padding": 16, **changes})


def test_an_empty_pool_is_free_but_for_the_null_block_and_the_remainder():
    parts = parts_of([FakeManager(full_group())], make_pool(5), {}, num_blocks=5, memory=500)
    assert parts == {"remainder": 500 - 5 * 96, "null_block": 96, "free": 4 * 96}


def test_slots_of_full_attention_are_live_tail_or_lookahead():
    manager = FakeManager(full_group())
    manager.req_to_blocks["a"] = [1, 2, 3]
    # 6 computed tokens: block 1 live, block 2 two live and two tail, block 3 not begun.
    parts = parts_of([manager], make_pool(5, held=[1, 2, 3]), {"a": 6}, num_blocks=5)
    assert parts == {
        "null_block": 96,
        "free": 96,
        "page_padding": 3 * 16,
        "live": 6 * 20,
        "tail": 2 * 20,
        "lookahead": 4 * 20,
    }


def test_tokens_behind_a_window_are_out_of_window():
    manager = FakeManager(full_group(), window=4)
    manager.req_to_blocks["a"] = [0, 1, 2]
    # 10 computed, window 4: token 10 reads 7..10, so of block 1 (tokens 4..7) 4, 5 and 6 are out.
    parts = parts_of([manager], make_pool(4, held=[1, 2]), {"a": 10}, num_blocks=4)
    assert parts["out_of_window"] == 3 * 20
    assert parts["live"] == (1 + 2) * 20
    assert parts["tail"] == 2 * 20


def test_a_shared_block_counts_once_and_is_in_the_window_of_its_last_reader():
    manager = FakeManager(full_group(), window=4)
    manager.req_to_blocks["ahead"] = [1, 2, 3]  # 12 computed: tokens before 9 are out
    manager.req_to_blocks["behind"] = [1, 2]  # 8 computed: tokens before 5 are out
    parts = parts_of(
        [manager], make_pool(4, held=[1, 2, 3]), {"ahead": 12, "behind": 8}, num_blocks=4
    )
    # Out for both: tokens 0..4 in blocks 1 and 2, and token 8 in block 3, which only "ahead" holds.
    assert parts["out_of_window"] == (5 + 1) * 20
    assert parts["live"] == (3 + 3) * 20


def test_a_free_block_with_content_is_reusable_but_for_its_padding():
    manager = FakeManager(full_group(layer_padding=8, page_padding=8))
    parts = parts_of([manager], make_pool(3, cached=[(2, 0)]), {}, num_blocks=3)
    assert parts == {
        "null_block": 96,
        "free": 96,
        "layer_padding": 8,
        "page_padding": 8,
        "reusable": 80,
    }


def test_an_older_state_is_reusable_and_the_newest_is_live():
    group = make_group(block_size=4, slot_bytes=24, is_state=True)
    manager = FakeManager(group)
    # The align example of spec/manager.md 3.5: [-, 3, -, 6] after 16 tokens, so 6 is the newest.
    manager.req_to_blocks["a"] = [0, 3, 0, 6]
    parts = parts_of([manager], make_pool(7, held=[3, 6]), {"a": 16}, num_blocks=7)
    assert parts == {"null_block": 96, "free": 4 * 96, "reusable": 96, "live": 96}


def test_a_state_that_one_holder_still_needs_is_live():
    group = make_group(block_size=4, slot_bytes=24, is_state=True)
    manager = FakeManager(group)
    manager.req_to_blocks["a"] = [1, 2]  # 8 computed: 1 is old
    manager.req_to_blocks["b"] = [1]  # 4 computed: 1 is the newest
    parts = parts_of([manager], make_pool(3, held=[1, 2]), {"a": 8, "b": 4}, num_blocks=3)
    assert parts == {"null_block": 96, "live": 2 * 96}


def test_a_lost_block_is_a_broken_invariant_with_all_terms():
    manager = FakeManager(full_group())
    manager.req_to_blocks["a"] = [1]
    with pytest.raises(InvariantError, match="2 free \\+ 1 held \\+ 1 null block are not 5"):
        parts_of([manager], make_pool(5, held=[1, 2]), {"a": 4}, num_blocks=5)


@pytest.mark.parametrize("table", [[1, 2], [0, 1], [0, 0, 0, 5, 6], [0, 0], [0], [7]])
def test_leading_nulls_are_counted(table):
    assert _num_leading_nulls(table) == sum(1 for entry in table if not entry)


@pytest.mark.parametrize("seed", range(60))
def test_partition_equals_the_count_slot_by_slot(seed):
    rng = random.Random(seed)
    managers = [
        FakeManager(full_group()),
        FakeManager(full_group(page_padding=10, layer_padding=6), window=rng.randrange(1, 12)),
        FakeManager(make_group(block_size=8, slot_bytes=11, layer_padding=8, is_state=True)),
        FakeManager(make_group(block_size=2, slot_bytes=40, layer_padding=16), window=3),
    ]
    computed = {f"r{i}": rng.randrange(30) for i in range(rng.randrange(5))}
    num_blocks = 120
    unused = list(range(1, num_blocks))
    rng.shuffle(unused)
    for manager in managers:
        for name, num_computed in computed.items():
            manager.req_to_blocks[name] = random_table(rng, manager, num_computed, unused)
        share_some(rng, manager)
    held = {b for m in managers for t in m.req_to_blocks.values() for b in t if b}
    free = [b for b in range(1, num_blocks) if b not in held]
    cached = [(b, rng.randrange(len(managers))) for b in free if rng.random() < 0.4]
    pool = make_pool(num_blocks, held, cached, len(managers))
    parts = parts_of(managers, pool, computed, num_blocks=num_blocks, memory=num_blocks * BLOCK + 7)
    slow = slow_sample(managers, pool, computed, num_blocks, BLOCK, num_blocks * BLOCK + 7)
    assert parts == {name: value for name, value in slow.items() if value}


def random_table(rng, manager, num_computed, unused):
    """A table as a manager could have it: entries that no later token reads may be null."""
    size = manager.group.block_size
    length = -(-(num_computed + rng.choice([0, 0, 3, 9])) // size)
    table = [unused.pop() for _ in range(length)]
    if manager.group.is_state:
        newest = (num_computed - 1) // size
        return [b if i >= newest or rng.random() < 0.3 else 0 for i, b in enumerate(table)]
    skipped = manager.get_num_skipped_tokens(num_computed) // size
    nulls = rng.randrange(min(skipped, length) + 1)
    return [0] * nulls + table[nulls:]


def share_some(rng, manager):
    """Let some requests hold another's block at the same place, as a prefix hit does."""
    tables = list(manager.req_to_blocks.values())
    for table in tables:
        other = rng.choice(tables)
        for index in range(min(len(table), len(other))):
            if table[index] and other[index] and rng.random() < 0.4:
                table[index] = other[index]
