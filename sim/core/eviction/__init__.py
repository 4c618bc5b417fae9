"""The order of the free blocks: one policy per file, one line here."""

from sim.core.eviction.lru import FreeKVCacheBlockQueue
from sim.core.eviction.policy import FreeQueue, FreeQueuePolicy
from sim.registry import Registry

EVICTION_POLICIES: Registry[FreeQueuePolicy] = Registry(
    "engine.free_queue",
    {
        "lru": FreeKVCacheBlockQueue,
    },
)

__all__ = ["EVICTION_POLICIES", "FreeKVCacheBlockQueue", "FreeQueue", "FreeQueuePolicy"]
