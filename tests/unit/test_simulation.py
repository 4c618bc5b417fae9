"""What a run does around its engine: names forgotten, arrivals told, few collections."""

from __future__ import annotations

import gc

import pytest

from sim import simulation
from sim.observer import Observer
from sim.prefix_ids import Identities
from sim.scenario_file import scenario_from
from sim.simulation import rare_collections, simulate
from sim.verification import differences

KEYS = {
    "model": "meta-llama/Llama-3.1-8B",
    "engine.core": "python",
    "cache.kv_cache_memory_bytes": "2GiB",
    "scheduler.max_model_len": 16_000,
    "workload.params.num_requests": 40,
    "workload.params.max_session_tokens": 12_000,
    "workload.params.arrival": {"rate_per_s": 4.0},
}


@pytest.fixture
def sweeps(monkeypatch):
    """Sweep often; return how often each run did."""
    counts = []

    class Eager(Identities):
        def __init__(self, size, cached_ids):
            super().__init__(size, cached_ids, sweep_after=50)
            counts.append(self.names)

    monkeypatch.setattr(simulation, "Identities", Eager)
    return lambda: [names._num_sweeps for names in counts]


def test_forgotten_names_change_nothing(sweeps):
    forgetful = simulate(scenario_from(KEYS))
    watched = simulate(scenario_from(KEYS), observer=Observer())
    assert differences(watched, forgetful) == []
    assert forgetful.metrics["requests_finished"] == 40
    assert sweeps()[0] > 2
    # Who watches may write names down: then each keeps its meaning.
    assert sweeps()[1] == 0


@pytest.mark.parametrize("key", ["engine.reasons", "cache.kv_cache_metrics"])
def test_names_that_somebody_writes_down_are_not_given_again(sweeps, key):
    simulate(scenario_from({**KEYS, key: True, "workload.params.num_requests": 10}))
    assert sweeps() == [0]


def test_collections_are_rare_inside_and_as_before_outside():
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), rare_collections():
        assert gc.get_threshold()[0] >= 100_000
        raise ZeroDivisionError
    assert gc.get_threshold() == before
    gc.set_threshold(0, *before[1:])
    try:
        with rare_collections():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
