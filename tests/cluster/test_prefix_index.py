"""What the index knows, and when: by hand, and beside the real lookups of whole runs."""

from __future__ import annotations

import pytest

from sim.cluster.prefix_index import PrefixIndex, ReplicaIndex
from sim.cluster.router import IndexSettings
from sim.cluster.simulation import simulate_cluster
from sim.layout.plan import plan_layout
from sim.layout_scenario import layout_settings
from sim.models import load_model
from tests.cluster.scenarios import (
    CHUNKED,
    GEMMA,
    JAMBA,
    LLAMA,
    Asking,
    cluster,
    forget,
    plain,
    register,
    started,
    turns,
)


class Time:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def time():
    return Time()


def tell(index: ReplicaIndex, prefix_ids, group: int = 0) -> None:
    index.registered(group, "r", 0, len(prefix_ids), -1, [0] * len(prefix_ids), prefix_ids)


def layout_of(base):
    scenario = plain(base)
    model = load_model(scenario.model)
    return plan_layout(model, layout_settings(scenario, model))


def test_an_event_is_known_at_its_time_plus_the_delay_and_not_before(time):
    index = ReplicaIndex(1, 100, time)
    time.now = 5
    tell(index, [7, 8])
    for now, known in ((5, {}), (104, {}), (105, {7: 1, 8: 1})):
        time.now = now
        index.catch_up()
        assert index.group(0) == known
    index.evicted([3], [0], [7])
    index.catch_up()
    assert index.group(0) == {7: 1, 8: 1}  # gone already, and not known
    time.now = 205
    index.catch_up()
    assert index.group(0) == {8: 1}


def test_without_a_delay_events_are_known_at_once(time):
    index = ReplicaIndex(2, 0, time)
    tell(index, [1], group=1)
    index.registered_partial(0, "r", 16, -1, 4, 9)
    index.catch_up()
    assert (index.group(0), index.group(1), index.num_blocks) == ({9: 1}, {1: 1}, 2)


def test_equal_blocks_are_counted(time):
    index = ReplicaIndex(1, 0, time)
    tell(index, [1])
    tell(index, [1])
    index.evicted([3], [0], [1])
    index.catch_up()
    assert (index.group(0), index.num_blocks) == ({1: 1}, 1)
    index.evicted([4], [0], [1])
    index.catch_up()
    assert (index.group(0), index.num_blocks) == ({}, 0)


def test_clearing_waits_for_its_turn(time):
    index = ReplicaIndex(1, 0, time)
    tell(index, [1])
    index.cleared()
    tell(index, [2])
    index.catch_up()
    assert (index.group(0), index.num_blocks) == ({2: 1}, 1)


def test_a_prompt_is_cached_as_far_as_its_leading_blocks_but_for_its_last_token(time):
    index = PrefixIndex(layout_of(LLAMA), IndexSettings(), 2, time)
    tell(index.replicas[0], [0, 1, 3])
    tell(index.replicas[1], [1, 2, 3])
    ids = [0, 1, 2, 3]
    assert index.cached_tokens(ids, 64) == [32, 0]
    assert index.cached_tokens(ids, 33) == [32, 0]
    assert index.cached_tokens(ids, 32) == [16, 0]  # the last token must be computed
    assert index.num_blocks() == [3, 3]
    assert index.cached_tokens([], 64) == [0, 0]  # no prefix caching, no names


def test_a_window_needs_its_last_blocks_only_and_every_group_must_agree(time):
    layout = layout_of(GEMMA)
    groups = layout.kv_cache_config.kv_cache_groups
    kinds = [group.kv_cache_spec.kind for group in groups]
    window = next(g.kv_cache_spec for g in groups if "sliding" in g.kv_cache_spec.kind)
    size = window.block_size
    assert layout.scheduler_block_size == layout.hash_block_size == size
    need = -(-(window.sliding_window - 1) // size)
    ids = list(range(100))
    settings = {name: PrefixIndex(layout, IndexSettings(groups=name), 1, time)
                for name in ("all", "full")}  # fmt: skip
    for index in settings.values():
        for group, kind in enumerate(kinds):
            # Full attention has 90 blocks; windows lack block 20 and everything behind 80.
            held = range(90) if "full" in kind else [i for i in range(80) if i != 20]
            tell(index.replicas[0], [ids[i] for i in held], group)
    assert 20 + need < 80
    assert settings["all"].cached_tokens(ids, 100 * size) == [80 * size]
    assert settings["full"].cached_tokens(ids, 100 * size) == [90 * size]
    # Below block 20 + the window the hole is in the way: the edge goes back to it.
    assert settings["all"].cached_tokens(ids, (20 + need) * size) == [20 * size]


@pytest.mark.parametrize("base", [LLAMA, GEMMA, JAMBA, CHUNKED], ids=lambda b: b["model"])
def test_without_a_delay_the_index_is_right_about_every_lookup(base):
    """At each arrival the index and the managers themselves say the same."""
    compared = []

    def choose(arrival):
        spec = arrival.spec
        ids = run.front._name_prefixes(spec)
        for replica, expected in zip(run.replicas, arrival.cached_tokens, strict=True):
            coordinator = replica.engine.core.manager.coordinator
            _, found = coordinator.find_longest_cache_hit(ids, spec.num_prompt_tokens - 1)
            compared.append((expected, found))
        pools = [replica.engine.core.manager.block_pool for replica in run.replicas]
        held = [sum(len(index) for index in pool.cached_blocks) for pool in pools]
        assert all(n >= m for n, m in zip(arrival.num_indexed_blocks, held, strict=True))
        return len(compared) % 3

    register("asking", lambda: Asking(choose, IndexSettings()))
    try:
        run = started(cluster(3, "asking", base=base))
        run.run()
    finally:
        forget("asking")
    assert len(compared) == 3 * len(run.front.routed) > 100
    assert all(expected == found for expected, found in compared)
    assert sum(found > 0 for _, found in compared) > 10


def test_a_late_index_promises_what_is_not_there_and_misses_what_is():
    results = [
        simulate_cluster(
            cluster(3, "prefix_aware", {"delay_ms": delay}, base=GEMMA, workload=turns(40))
        )
        for delay in (0.0, 20_000.0)
    ]
    index = [result.summary()["index"] for result in results]
    assert index[0]["broken_promises_tokens"] <= index[1]["broken_promises_tokens"]
    assert index[1]["unexpected_tokens"] > index[0]["unexpected_tokens"]
    assert results[0].requests["expected_tokens"].sum() == index[0]["expected_tokens"]
