"""The partition in plain loops equals the one in numpy, on the tables that a run could have."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sim.metrics import waste_compiled
from sim.metrics.waste import WastePartition
from sim.metrics.waste_compiled import waste_parts
from sim.tables import PARTS

from .slow_waste import FakeManager, make_group, make_manager, make_pool
from .test_waste import BLOCK, random_table, requests_of, share_some


def arrays_of(partition, managers, pool, computed):
    """Return the arguments as the compiled engine has them: tables in rows, in no order."""
    names = list(computed)
    rows = {name: 2 * i + 1 for i, name in enumerate(reversed(names))}
    tables = {name: [m.req_to_blocks.get(name, []) for m in managers] for name in names}
    longest = max([len(t) for own in tables.values() for t in own], default=0)
    blocks = np.full((2 * len(names) + 1, len(managers), longest), 99, np.int32)
    lengths = np.zeros(blocks.shape[:2], np.int64)
    for name, own in tables.items():
        for g, table in enumerate(own):
            blocks[rows[name], g, : len(table)] = table
            lengths[rows[name], g] = len(table)
    fields = ("layer_padding", "page_padding", "content", "block_size", "is_state")
    return (
        np.array([[getattr(g, f) for f in fields] for g in partition.groups], np.int64),
        np.array(
            [partition.num_blocks, partition.bytes_per_block, partition.kv_memory_bytes], np.int64
        ),
        np.ascontiguousarray(blocks.transpose(0, 2, 1)),
        lengths,
        lengths,  # every entry may be a hit
        np.array([rows[name] for name in names], np.int64),
        np.array([computed[name] for name in names], np.int64),
        np.array(
            [[m.get_num_skipped_tokens(computed[name]) for m in managers] for name in names],
            np.int64,
        ).reshape(len(names), len(managers)),
        other_holders(blocks, lengths, partition.num_blocks),
        np.array(pool.cached_free_by_group, np.int64),
        pool.get_num_free_blocks(),
    )


def other_holders(blocks, lengths, num_blocks):
    held = np.zeros(num_blocks, np.int32)
    for row, of_groups in zip(blocks, lengths, strict=True):
        for table, length in zip(row, of_groups, strict=True):
            held[table[:length]] += 1
    return np.maximum(held - 1, 0)


def check(managers, pool, computed, num_blocks, scratch):
    groups = [manager.group for manager in managers]
    partition = WastePartition(groups, num_blocks, BLOCK, num_blocks * BLOCK + 7)
    expected = partition.sample(make_manager(managers, pool), requests_of(computed))
    out = np.full(len(PARTS), 12345, np.int64)
    arguments = arrays_of(partition, managers, pool, computed)
    held = waste_parts(*arguments, scratch, np.zeros(4, np.int64), out)
    assert tuple(out) == expected
    assert held == num_blocks - 1 - pool.get_num_free_blocks()
    assert not scratch.any()


def test_places_are_in_the_order_of_the_parts():
    renamed = {"layer_padding": "layer_padding_bytes", "page_padding": "page_padding_bytes"}
    places = [getattr(waste_compiled, renamed.get(name, name).upper()) for name in PARTS]
    assert places == list(range(len(PARTS)))


def groups_of(rng):
    wide = make_group(block_size=4, slot_bytes=20, page_padding=16)
    padded = make_group(block_size=4, slot_bytes=20, page_padding=10, layer_padding=6)
    return [
        FakeManager(wide),
        FakeManager(padded, window=rng.randrange(1, 12)),
        FakeManager(make_group(block_size=8, slot_bytes=11, layer_padding=8, is_state=True)),
        FakeManager(make_group(block_size=2, slot_bytes=40, layer_padding=16), window=3),
    ]


@pytest.mark.parametrize("seed", range(200))
def test_equals_the_numpy_partition_on_random_tables(seed):
    rng = random.Random(seed)
    num_blocks = 300
    scratch = np.zeros(num_blocks, np.int32)
    managers = groups_of(rng)
    computed = {f"r{i}": rng.randrange(40) for i in range(rng.randrange(6))}
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
    check(managers, pool, computed, num_blocks, scratch)
    check(managers, pool, computed, num_blocks, scratch)


def test_long_table_behind_a_window_is_all_nulls_but_its_end():
    manager = FakeManager(make_group(block_size=4, slot_bytes=20, page_padding=16), window=8)
    manager.req_to_blocks["a"] = [0] * 997 + [3, 1, 2]
    pool = make_pool(5, [1, 2, 3])
    check([manager], pool, {"a": 3999}, 5, np.zeros(5, np.int32))


def test_no_request_and_an_empty_table():
    manager = FakeManager(make_group(block_size=4, slot_bytes=20))
    check([manager], make_pool(5, [], [(2, 0)]), {}, 5, np.zeros(5, np.int32))
    manager.req_to_blocks["a"] = []
    check([manager], make_pool(5, [], [(2, 0)]), {"a": 0}, 5, np.zeros(5, np.int32))
