"""Every grouping rule: a partition of the layers, defaults that are written down, determinism."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sim.config import Scenario, validated
from sim.errors import ConfigError
from sim.layout.grouping import GROUPING_HEURISTICS, GroupingRule, heuristic_for
from sim.layout.plans import MEMORY_PLANS
from sim.simulation import simulate
from tests.unit.grouping.buckets import buckets_of, limits

ALL = pytest.mark.parametrize("name", list(GROUPING_HEURISTICS))
DOCUMENT = (Path(__file__).parents[2] / "docs" / "groupings.md").read_text(encoding="utf-8")


def random_buckets(seed):
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 3, 5, 10, 12, 13, 29, 52]) for _ in range(rng.randint(1, 5))]
    return buckets_of(*sizes)


@ALL
@pytest.mark.parametrize("seed", range(25))
def test_each_layer_is_in_one_group_of_its_own_bucket(name, seed):
    buckets = random_buckets(seed)
    plan = heuristic_for(name, limits())(buckets)
    placed = sorted(layer for group in plan.groups for layer in group)
    assert placed == sorted(layer for bucket in buckets for layer in bucket.layer_names)
    members = [set(bucket.layer_names) for bucket in buckets]
    assert all(any(set(group) <= member for member in members) for group in plan.groups)
    assert 1 <= max(len(group) for group in plan.groups) <= plan.group_size


@ALL
def test_the_same_buckets_give_the_same_groups(name):
    rule = heuristic_for(name, limits())
    assert rule(random_buckets(3)) == rule(random_buckets(3))


@ALL
def test_buckets_may_hold_nothing(name):
    # a cross-attention layer without encoder tokens: a weight of 0 must divide nothing
    assert GROUPING_HEURISTICS[name](buckets_of(3, 2, blocks=[0, 0])).groups


@ALL
def test_a_rule_says_what_it_is_and_where_it_comes_from(name):
    rule = GROUPING_HEURISTICS[name]
    assert isinstance(rule, GroupingRule)
    assert rule.summary
    assert rule.source
    assert all(parameter.text for parameter in rule.parameters.values())


@pytest.mark.parametrize("name", [*GROUPING_HEURISTICS, *MEMORY_PLANS])
def test_the_document_names_it_with_its_parameters(name):
    entry = (MEMORY_PLANS if name in MEMORY_PLANS else GROUPING_HEURISTICS)[name]
    tables = DOCUMENT.partition("\n## Rules\n")[2].partition("\n## The cases\n")[0]
    row = next(line for line in tables.splitlines() if line.startswith(f"| `{name}` |"))
    assert all(f"`{parameter}`" in row for parameter in entry.parameters)


@pytest.mark.parametrize("name", list(MEMORY_PLANS))
def test_no_plan_has_the_name_of_a_rule(name):
    assert name not in GROUPING_HEURISTICS
    assert MEMORY_PLANS[name].summary
    assert MEMORY_PLANS[name].source


@ALL
@pytest.mark.slow
@pytest.mark.parametrize("model", ["google--gemma-3-27b-it", "ai21labs--Jamba-v0.1"])
def test_every_rule_runs_in_a_simulation(name, model):
    data = {
        "model": model,
        "cache": {"grouping": name, "kv_cache_memory_bytes": 80 * 2**30},
        "scheduler": {"max_model_len": 16384},
        "workload": {"name": "shared_prefix", "params": {"num_requests": 4}},
        "engine": {"waste_samples": 8},
    }
    result = simulate(validated(Scenario, data))
    assert (result.requests["outcome"] == "finished").all()
    assert len(result.requests) == 4


def test_a_memory_plan_is_refused_by_a_simulation():
    data = {"model": "google--gemma-3-27b-it", "cache": {"grouping": "type_pools"}}
    with pytest.raises(ConfigError, match="no allocator runs it yet"):
        simulate(validated(Scenario, data))
