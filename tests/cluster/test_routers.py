"""Each router's documented rule, by hand-made cases."""

from __future__ import annotations

from copy import deepcopy

import pytest

from sim.cluster.router import Load
from sim.cluster.routers import ROUTERS
from sim.config import validated
from sim.errors import ConfigError
from sim.request import Span
from tests.cluster.scenarios import arrival


def build(name: str, num_replicas: int = 3, **params):
    entry = ROUTERS[name]
    return entry.build(validated(entry.params, params), num_replicas)


BUSY = (Load(4, 900, 50), Load(2, 1000, 400), Load(2, 800, 10))


@pytest.mark.parametrize("name", list(ROUTERS))
def test_any_router_names_a_replica_and_changes_nothing_it_sees(name):
    twice = []
    for _ in range(2):
        router, chosen = build(name), []
        for number in range(20):
            loads = deepcopy(BUSY)
            chosen.append(router.choose(arrival(f"r{number}", loads=loads, cached=[0, 16, 32])))
            assert loads == BUSY
        twice.append(chosen)
        assert set(chosen) <= {0, 1, 2}
    assert twice[0] == twice[1]


@pytest.mark.parametrize("name", list(ROUTERS))
def test_any_router_serves_a_single_replica(name):
    router = build(name, 1)
    assert [router.choose(arrival(f"r{n}", loads=[Load(n)])) for n in range(5)] == [0] * 5


def test_round_robin_begins_with_the_first_and_goes_round():
    router = build("round_robin")
    assert [router.choose(arrival()) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("by", "chosen"), [("requests", 1), ("prompt_tokens", 2), ("prefill_tokens", 2)]
)
def test_least_loaded_counts_what_it_is_told_to_and_takes_the_lowest_of_equals(by, chosen):
    assert build("least_loaded", by=by).choose(arrival(loads=BUSY)) == chosen


def test_session_sends_a_session_to_one_replica_and_spreads_sessions():
    router = build("session", 8)
    loads = [Load() for _ in range(8)]
    homes = {}
    for session in range(200):
        chosen = {
            router.choose(arrival(f"{session}.{turn}", loads=loads, session=f"s{session}"))
            for turn in range(4)
        }
        assert len(chosen) == 1
        homes[session] = chosen.pop()
    counts = [list(homes.values()).count(replica) for replica in range(8)]
    assert min(counts) > 10  # of 25 each on average


def test_session_knows_its_homes_by_heart():
    """The hash is part of what a result means: it must not change from version to version."""
    router = build("session", 8)
    loads = [Load() for _ in range(8)]
    found = [router.choose(arrival(loads=loads, session=f"s{n}")) for n in range(8)]
    assert found == [5, 3, 4, 6, 4, 0, 3, 0]


def test_session_falls_back_to_the_request_or_to_its_first_tokens():
    loads = [Load() for _ in range(64)]
    by_id, by_prefix = build("session", 64), build("session", 64, prefix_tokens=150)
    same = (Span("system", 0, 100), Span("a", 0, 50))
    prompts = [(*same, Span(f"x{n}", 0, 9)) for n in range(5)]
    other = (Span("system", 0, 100), Span("b", 0, 50))
    ids = {
        by_id.choose(arrival(f"r{n}", loads=loads, prompt=prompt))
        for n, prompt in enumerate(prompts)
    }
    prefixes = {
        by_prefix.choose(arrival(f"r{n}", loads=loads, prompt=prompt))
        for n, prompt in enumerate(prompts)
    }
    assert len(ids) > 1
    assert len(prefixes) == 1
    assert by_prefix.choose(arrival(loads=loads, prompt=other)) not in prefixes


def test_prefix_aware_weighs_cached_tokens_against_tokens_that_wait():
    cached = [500, 0, 300]
    assert build("prefix_aware").choose(arrival(cached=cached)) == 0
    loads = (Load(1, 900, 201), Load(1, 0, 0), Load(1, 0, 0))
    # 500 - 201 < 300: the longer prefix has to wait.
    assert build("prefix_aware").choose(arrival(loads=loads, cached=cached)) == 2
    assert build("prefix_aware", load_weight=0).choose(arrival(loads=loads, cached=cached)) == 0
    # 500 - 3 * 201 < 0, 300 - 3 * 101 < 0: the one without either.
    loads = (Load(1, 900, 201), Load(1, 0, 0), Load(1, 900, 101))
    router = build("prefix_aware", load_weight=3)
    assert router.choose(arrival(loads=loads, cached=cached)) == 1


def test_prefix_aware_takes_among_equals_fewer_requests_then_fewer_blocks_then_the_lowest():
    router = build("prefix_aware")
    assert router.choose(arrival(loads=(Load(3), Load(2), Load(2)), blocks=[1, 9, 4])) == 2
    assert router.choose(arrival(loads=(Load(2), Load(2), Load(2)), blocks=[9, 4, 4])) == 1
    assert router.choose(arrival()) == 0


def test_prefix_aware_reads_its_delay_in_milliseconds():
    index = build("prefix_aware", delay_ms=2.5, groups="full").index
    assert (index.delay_ns, index.groups) == (2_500_000, "full")


@pytest.mark.parametrize(
    ("name", "params", "key"),
    [
        ("round_robin", {"weight": 1}, "weight"),
        ("least_loaded", {"by": "request"}, "by"),
        ("prefix_aware", {"delay_ms": -1}, "delay_ms"),
        ("session", {"prefix_tokens": -1}, "prefix_tokens"),
    ],
)
def test_wrong_parameters_are_named(name, params, key):
    with pytest.raises(ConfigError) as caught:
        validated(ROUTERS[name].params, params, "cluster.router.params")
    assert caught.value.problems[0].key == f"cluster.router.params.{key}"


def test_an_unknown_router_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigError, match="did you mean round_robin"):
        ROUTERS["round_robn"]
