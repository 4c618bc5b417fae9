"""Hypothesis profiles, and the two implementations that the specification's examples run on."""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace

import pytest
from hypothesis import settings

EXAMPLES = os.environ.get("KVSIM_EXAMPLES")

settings.register_profile("default", deadline=None, derandomize=True, database=None)
settings.register_profile(
    "large", deadline=None, database=None, max_examples=int(EXAMPLES or 1), print_blob=True
)
settings.load_profile("large" if EXAMPLES else "default")


def load_implementation(name: str) -> SimpleNamespace:
    """Return the classes of the naive reference or of the simulator."""
    if name == "reference":
        manager = scheduler = importlib.import_module("tests.reference")
    else:
        manager = importlib.import_module("sim.core.kv_cache_manager")
        scheduler = importlib.import_module("sim.scheduler.scheduler")
    return SimpleNamespace(
        name=name,
        KVCacheManager=manager.KVCacheManager,
        Scheduler=scheduler.Scheduler,
        SchedulerLimits=scheduler.SchedulerLimits,
    )


@pytest.fixture(params=["reference", "sim"])
def implementation(request) -> SimpleNamespace:
    """Both implementations, one after the other: an example of the specification binds both."""
    return load_implementation(request.param)


# Whole runs, whole traces and thousands of mutations: `make slow` (and `make ci`) runs them, so
# `make test` stays under three minutes with the install.
SLOW = (
    "tests/test_trace_hits.py",
    "tests/test_determinism.py::test_killed_run",
    "tests/test_determinism.py::test_two_processes_with_different_hash_seeds_write_the_same_bytes"
    "[gemma-with-figures]",
    "tests/test_determinism.py::test_two_processes_with_different_hash_seeds_write_the_same_bytes"
    "[jamba]",
    "tests/test_observer_effect.py::test_events_and_table_edits_replay_to_the_exact_state_and_change"
    "_nothing[google--gemma",
    "tests/test_observer_effect.py::test_recording_reasons_changes_no_decision_and_explains_every"
    "_admission[google--gemma",
    "tests/test_cli_layout.py::test_examples_print_draw_and_check",
    "tests/contracts/test_grouping_heuristic.py::test_every_rule_runs_in_a_simulation",
    "tests/properties/test_events_replay.py::test_the_file_of_a_whole_run",
    "tests/unit/events/test_run_recordings.py",
    "tests/unit/from_log/test_from_log.py::test_any_log",
    "tests/unit/grouping/test_comparison.py::test_there_are_91_models",
    "tests/unit/models/test_mutated_layouts.py",
    "tests/unit/models/test_mutations.py",
    "tests/unit/test_scenario_file.py::test_any_plain_data",
    "tests/unit/test_scenario_file.py::test_writing_a_scenario",
    "tests/unit/test_results.py::test_another_process",
    "tests/unit/test_results.py::test_figures_added_later",
    "tests/unit/workloads/test_infinite_pool.py",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
