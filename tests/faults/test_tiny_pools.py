"""Pools of 1, 2 and 3 blocks, one of them the null block: who is served, who is refused."""

from __future__ import annotations

import pytest

from sim.config import Scenario, validated
from sim.core.block_pool import BlockPool
from sim.core.integrity import check_integrity, check_queue
from sim.core.kv_cache_manager import KVCacheManager
from sim.errors import ConfigError
from sim.simulation import simulate
from tests.helpers import Prefixes, admit, full, make_kv_cache_config, sliding


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_a_pool_hands_out_all_but_the_null_block_and_takes_them_back(num_blocks):
    pool = BlockPool(num_blocks)
    usable = num_blocks - 1
    assert pool.get_usage() == 0
    with pytest.raises(ValueError):
        pool.get_new_blocks(num_blocks, 0)
    blocks = pool.get_new_blocks(usable, 0)
    assert blocks == list(range(1, num_blocks))
    assert pool.get_usage() == (1 if usable else 0)
    for name, block_id in enumerate(blocks):
        pool.register(block_id, 0, name)
    assert pool.reset_prefix_cache() is (usable == 0)
    pool.free_blocks(blocks[::-1])
    assert check_queue(pool) == set(blocks)
    assert pool.reset_prefix_cache()


def test_a_pool_without_the_null_block_is_refused():
    with pytest.raises(ValueError, match="at least the null block, got 0"):
        BlockPool(0)


# Blocks of 4. Full attention: 1 to 4 tokens need one block, 5 to 8 two. With a second group, twice.
@pytest.mark.parametrize(
    ("specs", "num_blocks", "num_tokens", "fits"),
    [
        ((full(4),), 1, 1, False),
        ((full(4),), 2, 4, True),
        ((full(4),), 2, 5, False),
        ((full(4),), 3, 8, True),
        ((full(4),), 3, 9, False),
        ((full(4), sliding(4, 8)), 1, 1, False),
        ((full(4), sliding(4, 8)), 2, 1, False),
        ((full(4), sliding(4, 8)), 3, 4, True),
        ((full(4), sliding(4, 8)), 3, 5, False),
    ],
)
def test_a_manager_gives_a_request_what_there_is_or_nothing(specs, num_blocks, num_tokens, fits):
    config = make_kv_cache_config(specs, num_blocks=num_blocks)
    manager = KVCacheManager(config, 64, 4, 4, max_num_batched_tokens=64)
    request = Prefixes(4).request("r", range(num_tokens))
    hit, new = admit(manager, request)
    assert hit == 0
    assert (new is not None) is fits
    check_integrity(manager)
    manager.free(request)
    check_integrity(manager)
    assert manager.block_pool.get_num_free_blocks() == num_blocks - 1
    assert manager.reset_prefix_cache()


def run(num_blocks: int, prompt: int, unschedulable: str, max_model_len: int):
    """Six requests of one group of full attention with blocks of 16: prompt tokens, 4 of output."""

    def exactly(tokens):
        return {"mean": tokens, "cv": 0.0}

    lengths = {"system_prompt": exactly(4), "user": exactly(prompt - 4), "output": exactly(4)}
    data = {
        "model": "meta-llama--Llama-3.1-8B",
        "cache": {"num_gpu_blocks_override": num_blocks, "block_size": 16},
        "scheduler": {
            "max_model_len": max_model_len,
            "max_num_batched_tokens": 64,
            "max_num_seqs": 4,
            "unschedulable": unschedulable,
        },
        "workload": {"name": "shared_prefix", "params": {"num_requests": 6, **lengths}},
        "engine": {"check_every": 1},
    }
    return simulate(validated(Scenario, data))


# prompt 8 + 4 tokens lie in one block, prompt 20 + 4 in two.
@pytest.mark.parametrize(
    ("num_blocks", "prompt", "reject", "wait"),
    [
        (1, 8, "rejected", "stuck"),
        (2, 8, "finished", "finished"),
        (2, 20, "rejected", "stuck"),
        (3, 8, "finished", "finished"),
        (3, 20, "finished", "finished"),
    ],
)
def test_a_run_in_a_tiny_pool_serves_what_fits_and_says_what_does_not(
    num_blocks, prompt, reject, wait
):
    for unschedulable, outcome in (("reject", reject), ("wait", wait)):
        result = run(num_blocks, prompt, unschedulable, max_model_len=16 * num_blocks)
        assert set(result.requests["outcome"]) == {outcome}
        assert len(result.requests) == 6


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_a_pool_too_small_for_the_longest_request_is_refused_at_the_start(num_blocks):
    with pytest.raises(ConfigError, match="To serve at least one request"):
        run(num_blocks, 8, "reject", max_model_len=16 * num_blocks + 1)
