"""Hits at every capacity in one pass, against one slow LRU for each capacity."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sim.curve import stack_distances
from sim.curve.blocks import Batch, batches
from sim.curve.hit_curve import HitCurve, leading_hits
from sim.curve.numbering import DirectNumbering, Numbering
from sim.curve.stack_distances import DEFINITIONS
from sim.curve.stack_distances_compiled import Stack, access_depths, leading_depths
from tests.curve.made_traces import made_rows
from tests.curve.slow_lru import slow_hits

CAPACITIES = [1, 2, 3, 4, 5, 7, 9, 12, 20, 33, 50, 80, 130, 300, 10_000]


def chained(seed: int) -> list[list[int]]:
    return [row["hash_ids"] for row in made_rows(seed)]


def unchained(seed: int) -> list[list[int]]:
    """Any ids in any order: no id names what comes before it; some come twice in a request."""
    rng = random.Random(seed)
    return [[rng.randint(0, 40) for _ in range(rng.randint(0, 15))] for _ in range(150)]


def as_batches(requests, num_lookups, size: int) -> list[Batch]:
    numbering = Numbering()
    rows = ((r, n, 8 * len(r)) for r, n in zip(requests, num_lookups, strict=True))
    made = (Batch(*columns) for columns in batches(rows, size))
    return [batch._replace(ids=numbering.of(batch.ids)) for batch in made]


@pytest.fixture(params=["plain", "compiled"])
def loops_fixture(request, monkeypatch):
    """Both halves of the loops: as they are, and as plain Python."""
    if request.param == "plain":
        for name in ("leading_depths", "access_depths"):
            function = getattr(stack_distances, name)
            monkeypatch.setattr(stack_distances, name, getattr(function, "py_func", function))


@pytest.mark.usefixtures("loops_fixture")
@pytest.mark.parametrize("definition", list(DEFINITIONS))
@pytest.mark.parametrize("make", [chained, unchained])
@pytest.mark.parametrize("size", [1, 40, 10**6])
def test_hits_of_each_request_at_every_capacity_are_those_of_a_slow_lru(definition, make, size):
    """Requests longer than the cache, of which it keeps only a part, are among them."""
    requests = make(size)
    num_lookups = [len(r) if i % 3 else max(0, len(r) - 2) for i, r in enumerate(requests)]
    curve = HitCurve(DEFINITIONS[definition], 8)
    made = as_batches(requests, num_lookups, size)
    depths = [curve.add(batch) for batch in made]
    for capacity in CAPACITIES:
        slow = slow_hits(definition, requests, num_lookups, capacity)
        fast = [leading_hits(b, d, capacity) for b, d in zip(made, depths, strict=True)]
        assert np.concatenate(fast).tolist() == slow
        assert curve.hits([capacity]) == sum(slow)
        assert curve.hit_tokens([capacity]) == 8 * sum(slow)


@pytest.mark.parametrize("definition", list(DEFINITIONS))
def test_positions_are_renumbered_when_they_run_out(monkeypatch, definition):
    requests = chained(5) * 20
    num_lookups = [len(r) for r in requests]
    monkeypatch.setattr(stack_distances, "SMALLEST", 16)
    curve = HitCurve(DEFINITIONS[definition], 8)
    for batch in as_batches(requests, num_lookups, 30):
        curve.add(batch)
        stack = curve._histogram._distances._stack
        assert len(stack.holes) <= 2 * (curve.num_distinct + 100)
    for capacity in CAPACITIES[::3]:
        assert curve.hits([capacity]) == sum(slow_hits(definition, requests, num_lookups, capacity))


def test_a_larger_cache_never_hits_less():
    curve = HitCurve(DEFINITIONS["leaf_first"], 8)
    for batch in as_batches(chained(1), map(len, chained(1)), 100):
        curve.add(batch)
    hits = curve.hits(range(0, curve.num_distinct + 2))
    assert hits[0] == 0
    assert (np.diff(hits) >= 0).all()
    assert hits[-1] == hits[-2]


def test_chained_ids_hit_the_same_per_access_as_by_leading_run():
    """Oracle: A = B is a property of ids that name their prefix; other ids lack it."""
    totals = {}
    for make in (chained, unchained):
        for name in ("per_access", "root_first"):
            curve = HitCurve(DEFINITIONS[name], 8)
            requests = make(3)
            for batch in as_batches(requests, map(len, requests), 100):
                curve.add(batch)
            totals[make, name] = curve.hits(CAPACITIES).tolist()
    assert totals[chained, "per_access"] == totals[chained, "root_first"]
    assert totals[unchained, "per_access"] != totals[unchained, "root_first"]


def test_a_last_block_counts_the_tokens_that_it_has():
    """Two blocks of 8 for 11 prompt tokens: 8 and 3."""
    batch = Batch(np.array([0, 1, 0, 1]), np.array([0, 2, 4]), np.array([2, 2]), np.array([11, 11]))
    curve = HitCurve(DEFINITIONS["leaf_first"], 8)
    assert curve.add(batch).tolist() == [0, 0, 1, 2]
    assert curve.hit_tokens([0, 1, 2]).tolist() == [0, 8, 11]
    assert curve.totals.num_lookup_tokens == curve.totals.num_prompt_tokens == 22


def test_the_order_of_touches_decides_what_a_small_cache_keeps():
    """One block of [0, 1] fits: touched last is the root, or the leaf, which alone is no hit."""
    batch = Batch(np.array([0, 1, 0, 1]), np.array([0, 2, 4]), np.array([2, 2]), np.array([16, 16]))
    depths = {}
    for name, loop in (("leaf_first", True), ("root_first", False)):
        stack = Stack(np.zeros(2, np.int64), np.zeros(9, np.int32), np.zeros(2, np.int64))
        depths[name] = np.zeros(4, np.int64)
        leading_depths(stack, batch.ids, batch.starts, batch.num_lookups, loop, depths[name])
    assert depths["leaf_first"].tolist() == [0, 0, 1, 2]
    assert depths["root_first"].tolist() == [0, 0, 2, 2]
    stack = Stack(np.zeros(2, np.int64), np.zeros(9, np.int32), np.zeros(2, np.int64))
    own = np.zeros(4, np.int64)
    access_depths(stack, batch.ids, batch.starts, batch.num_lookups, own)
    assert own.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("numbering", [Numbering(), DirectNumbering()])
def test_numbers_are_dense_and_stay(numbering):
    first = numbering.of(np.array([7, 3, 7, 900]))
    second = numbering.of(np.array([3, 5, 900], np.int64))
    assert first[0] == first[2]
    assert sorted({*first.tolist(), *second.tolist()}) == [0, 1, 2, 3]
    assert (second[0], second[2]) == (first[1], first[3])
    assert len(numbering) == 4
