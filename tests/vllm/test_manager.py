"""A run on vLLM's own cache manager has the same tables as one on ours."""

from __future__ import annotations

import pytest

from sim.simulation import simulate
from sim.vllm import is_installed
from tests.vllm.scenarios import MODELS, scenario

pytestmark = pytest.mark.skipif(not is_installed(), reason="vLLM 0.25.1 is not installed")


@pytest.mark.parametrize("name", MODELS)
def test_result_tables_are_the_same(name: str) -> None:
    native = simulate(scenario(name))
    vllm = simulate(scenario(name, **{"engine.manager": "vllm", "engine.check_every": 40}))
    ours, theirs = native.tables, vllm.tables
    assert ours.prefix_cache_hits > 0
    for table in ("requests", "steps", "waste"):
        assert getattr(ours, table).equals(getattr(theirs, table)), table
    assert (ours.prefix_cache_queries, ours.prefix_cache_hits) == (
        theirs.prefix_cache_queries, theirs.prefix_cache_hits,
    )  # fmt: skip
    assert native.metrics == vllm.metrics
