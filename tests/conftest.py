"""Hypothesis profiles, and the two implementations that the specification's examples run on."""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace

import pytest
from hypothesis import settings

# Compiling takes a minute; `make compiled` compiles, and says so by setting this to 0.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

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
