"""A native part that is broken on purpose is caught, and the account says where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sim.core.attention.sliding_window import SlidingWindowManager
from sim.core.block_pool import BlockPool
from sim.core.eviction import FreeKVCacheBlockQueue
from sim.core.prefix_cache_stats import PrefixCacheStats
from sim.scheduler.scheduler import Scheduler
from sim.vllm import is_installed
from sim.vllm.difference import Divergence
from tests.vllm.mirrored import FULL, SLIDING, World, play, pool

pytestmark = pytest.mark.skipif(not is_installed(), reason="vLLM 0.25.1 is not installed")

WORLD = World(config=pool(60, FULL, SLIDING))


def account_of(world: World = WORLD) -> str:
    with pytest.raises(Divergence) as caught:
        play(world)
    return str(caught.value)


def test_a_queue_in_another_order_is_named_with_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FreeKVCacheBlockQueue.append_n

    def reversed_order(queue: FreeKVCacheBlockQueue, block_ids: Sequence[int]) -> None:
        right(queue, block_ids[::-1])

    monkeypatch.setattr(FreeKVCacheBlockQueue, "append_n", reversed_order)
    text = account_of()
    assert "what     free queue, entry " in text
    lines = [line.split() for line in text.splitlines() if line.startswith("    ")]
    queues = [line for line in lines if line[-1] == "blocks)"]
    assert any(ours[1:] != vllm[1:] for ours, vllm in zip(queues[::2], queues[1::2], strict=True))
    assert "\n  block " in text


def test_a_window_that_is_a_block_too_short_is_named_by_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = SlidingWindowManager.get_num_skipped_tokens

    def too_many(manager: SlidingWindowManager, num_computed_tokens: int) -> int:
        return right(manager, num_computed_tokens) + 16

    monkeypatch.setattr(SlidingWindowManager, "get_num_skipped_tokens", too_many)
    text = account_of()
    assert "after schedule() of step " in text
    assert "\n  group    1 (sliding_window)\n" in text


def test_a_lost_holder_is_named_by_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    right = BlockPool.touch

    def touch_twice(blocks: BlockPool, block_ids: Sequence[int], group_id: int) -> None:
        right(blocks, block_ids, group_id)
        for block_id in block_ids[:1]:
            blocks.ref_cnt[block_id] += 1

    monkeypatch.setattr(BlockPool, "touch", touch_twice)
    text = account_of()
    block_id = text.partition("reference count of block ")[2].split()[0]
    both = text.partition(f"\n  block {block_id}\n")[2].splitlines()
    ours, vllm = (int(line.split()[1]) for line in both)
    assert ours == vllm + 1


def test_a_chunk_of_another_length_is_named_by_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Scheduler._below_threshold

    def one_less(scheduler: Scheduler, num_new: int) -> int:
        return max(right(scheduler, num_new) - 1, 1)

    monkeypatch.setattr(Scheduler, "_below_threshold", one_less)
    text = account_of()
    assert text.startswith("the first difference, after schedule() of step ")
    assert "  what     scheduled tokens\n  request  r0\n" in text


def test_statistics_and_events_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(*_: Any, **__: Any) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr(PrefixCacheStats, "record", ignore)
        assert "prefix cache statistics of " in account_of()
    with monkeypatch.context() as patched:
        patched.setattr("sim.core.kv_events.KVEventLog.evicted", ignore)
        assert "what     KV events" in account_of()
