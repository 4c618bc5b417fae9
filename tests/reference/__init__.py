"""Slow, obviously right models of the manager and the scheduler, written from spec/manager.md.

Nothing here is shared with ``sim.core`` or ``sim.scheduler``: lists, dicts and plain loops. The
public names are those of the real ones, so that one test drives both.
"""

from tests.reference.kv_cache_manager import KVCacheManager
from tests.reference.pool import BlockPool
from tests.reference.scheduler import Scheduler, SchedulerLimits

__all__ = ["BlockPool", "KVCacheManager", "Scheduler", "SchedulerLimits"]
