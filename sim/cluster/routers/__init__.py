"""The routers: who gets the next request; one line each."""

from __future__ import annotations

from sim.cluster.router import RouterEntry
from sim.cluster.routers.least_loaded import LEAST_LOADED
from sim.cluster.routers.prefix_aware import PREFIX_AWARE
from sim.cluster.routers.round_robin import ROUND_ROBIN
from sim.cluster.routers.session import SESSION
from sim.registry import Registry

ROUTERS: Registry[RouterEntry] = Registry(
    "cluster.router.name",
    {entry.name: entry for entry in (ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE, SESSION)},
)
