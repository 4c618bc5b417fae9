"""Where the bytes are with as many requests as fit: by hand, and that they sum to the memory."""

import pytest

from sim.layout.grouping import LengthDistribution
from sim.layout.kv_cache_spec import ChunkedLocalAttentionSpec, CrossAttentionSpec
from sim.layout.plans.planned import Planned, PlannedGroup, PlannedPool
from sim.layout.plans.steady_state import PARTS, Held, held_at, steady_state
from tests.unit.grouping.buckets import PAGE, full, limits, mamba, sliding

SHAPE = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}


@pytest.mark.parametrize(
    ("spec", "length", "expected"),
    [
        (full(), 33, Held(3, live=33, tail=15)),
        # the next token reads the last 127: tokens from 8065 on, block 504 begins at 8064
        # (spec/real_cases.md B25: 8 to 9 blocks)
        (sliding(sliding_window=128), 8192, Held(8, live=127, out_of_window=1)),
        (sliding(sliding_window=128), 8193, Held(9, live=127, out_of_window=2, tail=15)),
        (sliding(sliding_window=128), 100, Held(7, live=100, tail=12)),
        # chunks of 64: token 130 sits in the chunk from 128 on
        (ChunkedLocalAttentionSpec(attention_chunk_size=64, **SHAPE), 130, Held(1, 2, 14)),
        (ChunkedLocalAttentionSpec(attention_chunk_size=64, **SHAPE), 128, Held(0)),
        (mamba(), 1000, Held(1, live=1)),
        (mamba(num_speculative_blocks=2), 1000, Held(3, live=1, lookahead=2)),
    ],
)
def test_what_a_request_holds(spec, length, expected):
    assert held_at(spec, length, limits()) == expected


@pytest.mark.parametrize(
    ("mode", "length", "expected"),
    [
        ("align", 16, Held(1, live=1)),
        ("align", 1000, Held(2, live=1, reusable=1)),
        ("all", 1000, Held(63, live=1, reusable=62)),
    ],
)
def test_states_that_a_newer_one_replaced_can_be_reused(mode, length, expected):
    assert held_at(mamba(), length, limits(mamba_cache_mode=mode)) == expected


def test_cross_attention_holds_the_encoder_s_tokens():
    spec = CrossAttentionSpec(**SHAPE)
    bound = limits(max_num_encoder_input_tokens=1500)
    assert held_at(spec, 5, bound) == Held(94, live=1500, tail=4)


def pool_of(num_pages, *groups, reserved=1):
    return PlannedPool(num_pages, 2 * PAGE, groups, reserved)


def memory_of(*pools, remainder=7):
    size = sum(pool.num_pages * pool.page_bytes for pool in pools)
    return Planned(pools, size + remainder, 2, 0, 0, 1.0)


def test_parts_by_hand():
    # blocks of two pages: two full layers; one sliding layer with one page of layer padding.
    # 24 tokens: 2 full blocks; a window of 8 reads 7, from token 17 on: 1 sliding block
    two = PlannedGroup(("a", "b"), full(), 2 * PAGE, 2 * PAGE)
    one = PlannedGroup(("c",), sliding(sliding_window=8), 2 * PAGE, PAGE)
    requests, parts = steady_state(
        memory_of(pool_of(12, two, one)), LengthDistribution.read("24"), limits()
    )
    # 11 blocks of use, 3 a request: 3 requests and 2 free blocks
    token = PAGE // 16
    assert requests == 3
    assert parts == dict.fromkeys(PARTS, 0) | {
        "live": 3 * (24 * 2 + 7) * token,
        "tail": 3 * (8 * 2 + 8) * token,
        "out_of_window": 3 * 1 * token,
        "layer_padding": 3 * PAGE,
        "null_block": 2 * PAGE,
        "free": 2 * 2 * PAGE,
        "remainder": 7,
    }


def test_requests_come_in_whole_rounds_of_the_distribution():
    # 16*2 + 32: 1 + 1 + 2 blocks a round; 11 blocks hold two rounds
    two = PlannedGroup(("a", "b"), full(), 2 * PAGE, 2 * PAGE)
    memory = memory_of(pool_of(12, two))
    requests, parts = steady_state(memory, LengthDistribution.read("16*2+32"), limits())
    assert (requests, parts["free"]) == (6, 3 * 2 * PAGE)
    assert sum(parts.values()) == memory.memory_bytes


def test_the_smallest_pool_decides():
    two = PlannedGroup(("a", "b"), full(), 2 * PAGE, 2 * PAGE)
    memory = memory_of(pool_of(12, two), pool_of(4, two))
    requests, parts = steady_state(memory, LengthDistribution.read("16"), limits())
    assert (requests, parts["free"]) == (3, 8 * 2 * PAGE)
    assert sum(parts.values()) == memory.memory_bytes


def test_blocks_that_share_a_page_fill_it_up():
    # two blocks share a page: 11 pages hold 22 requests of one block
    half = PlannedGroup(("a",), full(num_kv_heads=1), PAGE, PAGE // 8, 0, per_page=2)
    memory = memory_of(pool_of(12, half))
    requests, parts = steady_state(memory, LengthDistribution.read("16"), limits())
    assert (requests, parts["free"]) == (22, 0)
    assert parts["layer_padding"] == 22 * (PAGE - PAGE // 8)
    assert sum(parts.values()) == memory.memory_bytes


def test_a_pool_too_small_for_one_round_is_free():
    two = PlannedGroup(("a", "b"), full(), 2 * PAGE, 2 * PAGE)
    memory = memory_of(pool_of(2, two))
    requests, parts = steady_state(memory, LengthDistribution.read("32"), limits())
    assert (requests, parts["live"], parts["free"]) == (0, 0, 2 * PAGE)
