"""The section ``cluster`` of a scenario: how many replicas, and who chooses among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from sim.config import Plugin, Scenario, Strict, validated

Replicas = Annotated[int, Field(ge=1, le=1024)]


class RouterPlugin(Plugin):
    """The rule by which a request is given a replica."""

    name: str = "round_robin"


class ClusterConfig(Strict):
    """Equal engines, each as the rest of the scenario says, and the router in front of them."""

    replicas: Replicas = 1
    router: RouterPlugin = RouterPlugin()


class ClusterScenario(Scenario):
    """A scenario with a cluster: every file of a scenario is one, with a single replica."""

    cluster: ClusterConfig = ClusterConfig()


def with_cluster(scenario: Scenario, section: Mapping[str, Any] | ClusterConfig) -> ClusterScenario:
    """Return the scenario with a cluster, from its plain data or ready-made.

    Raises ConfigError, one line per wrong key or value.
    """
    if not isinstance(section, ClusterConfig):
        section = validated(ClusterConfig, section, "cluster")
    return ClusterScenario(**_fields(scenario), cluster=section)


def of_one_replica(scenario: ClusterScenario) -> Scenario:
    """Return what a single replica does: the scenario without its cluster."""
    return Scenario(**_fields(scenario))


def _fields(scenario: Scenario) -> dict[str, Any]:
    return {name: getattr(scenario, name) for name in Scenario.model_fields}
