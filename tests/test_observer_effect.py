"""Observation changes no decision, and what is observed is the whole truth."""

from __future__ import annotations

from collections import Counter

import pytest

from sim import simulation
from sim.config import Scenario, validated
from sim.core.kv_events import BlockRemoved, BlockStored, KVEventLog, replay
from sim.observer import NULL_OBSERVER, Observer

JAMBA = {"enable_prefix_caching": True, "mamba_cache_mode": "align"}
SCENARIOS = {
    "google--gemma-3-1b-it": {"kv_cache_memory_bytes": "400MiB"},
    "openai--gpt-oss-20b": {"kv_cache_memory_bytes": "1GiB"},
    "ai21labs--Jamba-v0.1": {"kv_cache_memory_bytes": "700MiB", **JAMBA},
}

MODELS = [
    pytest.param(m, marks=pytest.mark.slow) if m.startswith("google") else m for m in SCENARIOS
]


def scenario(model: str) -> Scenario:
    data = {
        "model": model,
        "cache": SCENARIOS[model],
        "scheduler": {"max_model_len": 32_768},
        "engine": {"check_every": 200},
        "workload": {"name": "multi_turn", "params": {"num_requests": 20}},
    }
    return validated(Scenario, data)


class TableReplay(Observer):
    """Rebuilds the block tables from the table verbs alone."""

    def __init__(self):
        self.tables: dict[tuple[str, int], list[int]] = {}

    def table_append(self, request_id, group_id, block_ids):
        self.tables.setdefault((request_id, group_id), []).extend(block_ids)

    def table_null(self, request_id, group_id, first_idx, last_idx):
        self.tables[request_id, group_id][first_idx:last_idx] = [0] * (last_idx - first_idx)

    def table_move(self, request_id, group_id, from_idx, to_idx):
        table = self.tables[request_id, group_id]
        assert to_idx == len(table)
        table.append(table[from_idx])
        table[from_idx] = 0

    def table_drop(self, request_id, group_id):
        self.tables.pop((request_id, group_id), None)


class Both(Observer):
    """Sends every event to an event log and to a table replay, and checks both at each drop."""

    def __init__(self, assembly):
        self.log = KVEventLog(assembly.layout.kv_cache_config, assembly.layout.hash_block_size)
        self.tables = TableReplay()
        self.index: Counter[tuple[int, int]] = Counter()
        self.manager = None
        self.num_checks = self.num_stored = self.num_removed = 0
        for name in ("registered", "evicted", "cleared"):
            setattr(self, name, getattr(self.log, name))
        for name in ("table_append", "table_null", "table_move"):
            setattr(self, name, getattr(self.tables, name))

    def table_drop(self, request_id, group_id):
        self.tables.table_drop(request_id, group_id)
        events = self.log.take_events()
        self.num_stored += sum(isinstance(e, BlockStored) for e in events)
        self.num_removed += sum(isinstance(e, BlockRemoved) for e in events)
        replay(events, self.index)
        pool = self.manager.block_pool
        assert self.index == Counter(
            (pool.group_id[b], i) for b, i in enumerate(pool.prefix_id) if i >= 0
        )
        singles = self.manager.coordinator.single_type_managers
        truth = {
            (request, g): table
            for g, single in enumerate(singles)
            for request, table in single.req_to_blocks.items()
        }
        assert {k: t for k, t in self.tables.tables.items() if t} == {
            k: t for k, t in truth.items() if t
        }
        self.num_checks += 1


def tables_of(result):
    return (result.requests.to_csv(), result.steps.to_csv(), result.waste.to_csv())


@pytest.mark.parametrize("model", MODELS)
def test_events_and_table_edits_replay_to_the_exact_state_and_change_nothing(model, monkeypatch):
    plain = simulation.simulate(scenario(model), observer=NULL_OBSERVER)
    observer = Both(simulation.assemble(scenario(model)))
    build = simulation.build_manager

    def remembered(*args):
        observer.manager = build(*args)
        return observer.manager

    monkeypatch.setattr(simulation, "build_manager", remembered)
    observed = simulation.simulate(scenario(model), observer=observer)
    assert tables_of(observed) == tables_of(plain)
    assert observer.num_checks >= 40
    assert observer.num_stored > 100
    assert observer.num_removed > 100, "the pool must be small enough to evict"


@pytest.mark.parametrize("model", MODELS)
def test_recording_reasons_changes_no_decision_and_explains_every_admission(model):
    plain = scenario(model)
    recording = plain.model_copy(
        update={"engine": plain.engine.model_copy(update={"reasons": True})}
    )
    result = simulation.simulate(recording)
    assert tables_of(result) == tables_of(simulation.simulate(plain))
    admitted = result.requests["cached_tokens"].notna().sum()
    assert result.reasons["first_admissions"] == admitted > 0
