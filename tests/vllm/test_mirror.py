"""Our scheduler beside vLLM's own, in small worlds, compared after every call."""

from __future__ import annotations

import pytest

from sim.vllm import is_installed
from tests.vllm import mirrored
from tests.vllm.mirrored import FULL, MAMBA, SLIDING, World, pool

pytestmark = pytest.mark.skipif(not is_installed(), reason="vLLM 0.25.1 is not installed")

WORLDS = {
    "full": World(config=pool(40, FULL)),
    "sliding": World(config=pool(60, FULL, SLIDING)),
    "align": World(config=pool(60, FULL, MAMBA), mamba_cache_mode="align"),
    "storm": World(config=pool(40, FULL, SLIDING), reserve_full_isl=False),
    "priority": World(config=pool(40, FULL), policy="priority", reserve_full_isl=False),
    "adapters": World(config=pool(60, FULL), max_loras=2),
    "aborts": World(config=pool(50, FULL, SLIDING), aborts=True, resets=True),
    "ngram": World(config=pool(50, FULL), spec_method="ngram", num_spec_tokens=3),
    "eagle": World(config=pool(60, FULL, SLIDING), spec_method="eagle", num_spec_tokens=2),
    "draft_model": World(
        config=pool(50, FULL), spec_method="draft_model", num_spec_tokens=2, reserve_full_isl=False
    ),
    "async": World(config=pool(40, FULL, SLIDING), async_scheduling=True, reserve_full_isl=False),
    "async_aborts": World(
        config=pool(50, FULL), async_scheduling=True, aborts=True, policy="priority"
    ),
    "async_eagle": World(
        config=pool(60, FULL), async_scheduling=True, spec_method="eagle", num_spec_tokens=2
    ),
}


@pytest.mark.parametrize("name", WORLDS)
def test_both_schedulers_decide_the_same(name: str) -> None:
    mirror = mirrored.play(WORLDS[name])
    counts = mirror.comparison.counts
    assert counts["requests"] == WORLDS[name].num_requests
    assert not mirror.requests
    assert counts["steps"] > 20
    assert counts["events"] > 0
