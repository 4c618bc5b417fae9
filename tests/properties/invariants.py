"""The laws of spec/manager.md 8, recounted from the public columns and tables alone."""

from __future__ import annotations

from collections import Counter

from sim.layout.kv_cache_spec import SlidingWindowSpec
from tests.properties.worlds import World


def tables_by_group(manager) -> list[dict[str, list[int]]]:
    """Return the non-empty tables of each group, null entries included."""
    return [
        {i: list(table) for i, table in group.req_to_blocks.items() if len(table)}
        for group in manager.coordinator.single_type_managers
    ]


def check_pool(manager, world: World) -> None:
    """Laws 1 to 8: the queue, the holders, the index."""
    pool = manager.block_pool
    free = list(pool.free_block_queue.get_all_free_blocks())
    groups = tables_by_group(manager)
    holders = Counter(b for tables in groups for t in tables.values() for b in t if b)
    assert len(set(free)) == len(free) == pool.get_num_free_blocks()  # 1
    assert len(free) + len(holders) + 1 == world.num_blocks  # 2
    assert list(pool.ref_cnt)[1:] == [holders[b] for b in range(1, world.num_blocks)]  # 3
    assert sorted(free) == [b for b in range(1, world.num_blocks) if not holders[b]]
    assert 0 not in free and pool.prefix_id[0] == -1  # 4
    _check_tables(pool, groups)
    _check_index(pool, world)
    assert 0 <= manager.usage <= 1  # 8
    if not world.enable_caching:
        assert all(name == -1 for name in pool.prefix_id)


def _check_tables(pool, groups: list[dict[str, list[int]]]) -> None:
    """Laws 5 and 6: once in a table, one group for a used block."""
    owner: dict[int, int] = {}
    for group_id, tables in enumerate(groups):
        for table in tables.values():
            held = [b for b in table if b]
            assert len(set(held)) == len(held)
            for block_id in held:
                assert owner.setdefault(block_id, group_id) == group_id
                assert pool.group_id[block_id] == group_id


def _check_index(pool, world: World) -> None:
    """Law 7: each block with content is found, or a duplicate of it is."""
    for block_id, name in enumerate(pool.prefix_id):
        if name == -1:
            continue
        group_id = pool.group_id[block_id]
        (found,) = pool.get_cached_block(name, [group_id])
        assert (pool.prefix_id[found], pool.group_id[found]) == (name, group_id)
        assert 0 <= group_id < len(world.specs)


def check_hit(world: World, rows, hit: int, num_tokens: int) -> None:
    """Laws 17 to 20 for one lookup over num_tokens - 1 tokens."""
    assert 0 <= hit <= max(num_tokens - 1, 0)
    assert hit % world.hit_alignment == 0
    for spec, row in zip(world.specs, rows, strict=True):
        if world.rows_equal_hit:
            assert len(row) * spec.block_size == hit
        if not hasattr(spec, "sliding_window") and not hasattr(spec, "mamba_cache_mode"):
            assert 0 not in row


def check_tables_after(manager, world: World, request, computed: int, slots: int) -> None:
    """Laws 25 and 26 after an allocation: length of the tables, null entries of windows."""
    for group in manager.coordinator.single_type_managers:
        table = list(group.req_to_blocks[request.request_id])
        assert group.num_cached_block.get(request.request_id, 0) <= len(table)
        spec, size = group.kv_cache_spec, group.block_size
        if not hasattr(spec, "mamba_cache_mode"):
            assert len(table) >= -(-slots // size)
        if isinstance(spec, SlidingWindowSpec) and world.rows_equal_hit:
            outside = [
                (i + 1) * size <= computed - spec.sliding_window + 1 for i in range(len(table))
            ]
            assert [b == 0 for b in table] == outside
    assert_registered_tokens_are_known(manager, request)


def assert_registered_tokens_are_known(manager, request) -> None:
    for group in manager.coordinator.single_type_managers:
        done = group.num_cached_block.get(request.request_id, 0)
        assert done * group.block_size <= request.num_tokens


def check_queue_after_free(
    before: list[int], after: list[int], freed: list[int], prefix_id
) -> None:
    """Law 12: newly freed hashless blocks stand before all others, cached ones behind."""
    hashless = [b for b in freed if b in after and prefix_id[b] == -1 and b not in before]
    cached = [b for b in freed if b in after and prefix_id[b] != -1 and b not in before]
    assert sorted(after[: len(hashless)]) == sorted(hashless)
    assert after[len(hashless) : len(hashless) + len(before)] == before
    assert sorted(after[len(hashless) + len(before) :]) == sorted(cached)
