"""One rule of the compiled engine is broken, and the worlds show it: what passes could have failed.

In plain Python only: compiled code does not look a function up again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sim.jit import is_available
from sim.scheduler.request_queue_compiled import add_request
from tests.compiled.compare import compare
from tests.compiled.covered import why_not_covered, without_what_only_python_has
from tests.compiled.engine_worlds import compare_runs
from tests.compiled.search import DRAWN
from tests.differential.draw import SeedDraw

NUM_SEEDS = 100
SCHEDULER = "sim.scheduler.scheduler_compiled"
OUTPUTS = "sim.scheduler.apply_outputs_compiled"
SINGLE = "sim.core.single_type_kv_cache_manager_compiled"
MANAGER = "sim.core.kv_cache_manager_compiled"
COORDINATOR = "sim.core.kv_cache_coordinator_compiled"
POOL = "sim.core.block_pool_compiled"
LRU = "sim.core.eviction.lru_compiled"
HYBRID = "sim.core.hybrid_kv_cache_coordinator_compiled"
LOOP = "sim.engine_loop_compiled"


def nothing(*_: Any) -> None:
    """Do nothing where a rule wants something done."""


def always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def same_request(m: Any, r: int) -> bool:
    return m.lookup[0].serial == m.requests[r].serial


def empty_list(pool: Any) -> None:
    pool.counters[0].back_head = pool.counters[0].back_length = 0


MUTATIONS = [
    ("scheduler", SCHEDULER, "_below_threshold", lambda limits, num_new: num_new),
    ("scheduler", SCHEDULER, "_least_urgent", always(0)),
    ("scheduler", SCHEDULER, "_has_its_last_token", always(False)),
    ("scheduler", SCHEDULER, "_undo", always(False)),
    ("scheduler", SCHEDULER, "prepend_request", add_request),
    ("scheduler", SCHEDULER, "block_aligned_split", lambda r, size, done, num_new, hint: num_new),
    ("scheduler", OUTPUTS, "_is_gone", lambda request, serial: request.serial != serial),
    ("scheduler", OUTPUTS, "cache_blocks", nothing),
    ("scheduler", MANAGER, "_needed_for_all", always(0)),
    ("scheduler", MANAGER, "_is_remembered", same_request),
    ("scheduler", COORDINATOR, "_next_registration", always(1 << 62)),
    ("manager", HYBRID, "_truncate", nothing),
    ("manager", SINGLE, "_is_reachable", always(True)),
    ("manager", SINGLE, "last_state_to_free", always(-1)),
    ("manager", SINGLE, "is_made_in_this_step", always(False)),
    ("manager", SINGLE, "_num_evictable", always(0)),
    ("manager", POOL, "_drop_duplicate", nothing),
    ("manager", LRU, "_compact", empty_list),
    ("engine", LOOP, "delivers", always(False)),
    ("engine", LOOP, "_had_whole_pool", always(False)),
]


def is_noticed(level: str, seed: int) -> bool:
    """Return whether the engines differ, or the broken one fails, on the world of a seed."""
    world = without_what_only_python_has(DRAWN[level](SeedDraw(seed)))
    if why_not_covered(world):
        return False
    judge = partial(compare_runs, seed=seed) if level == "engine" else compare
    try:
        judge(world)
    except Exception:
        return True
    return False


@pytest.mark.slow
@pytest.mark.skipif(is_available(), reason="compiled code cannot be patched")
@pytest.mark.parametrize(
    ("level", "module", "name", "broken"), MUTATIONS, ids=[mutation[2] for mutation in MUTATIONS]
)
def test_a_broken_rule_is_noticed(monkeypatch, level, module, name, broken):
    monkeypatch.setattr(importlib.import_module(module), name, broken)
    assert any(is_noticed(level, seed) for seed in range(NUM_SEEDS))


@pytest.mark.parametrize("level", DRAWN)
def test_nothing_is_noticed_where_nothing_is_broken(level):
    assert not any(is_noticed(level, seed) for seed in range(5))
