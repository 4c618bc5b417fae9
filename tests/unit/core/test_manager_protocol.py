"""Both managers have every method of the protocol, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

from sim.core.block_pool import BlockPool
from sim.core.kv_cache_coordinator import KVCacheCoordinator
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.manager_protocol import (
    BlockPoolProtocol,
    CoordinatorProtocol,
    GroupTables,
    ManagerProtocol,
)
from sim.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from sim.vllm.manager import CoordinatorView, VllmKVCacheManager
from sim.vllm.pool_view import BlockPoolView, GroupView

PAIRS = [
    (ManagerProtocol, KVCacheManager, VllmKVCacheManager),
    (BlockPoolProtocol, BlockPool, BlockPoolView),
    (CoordinatorProtocol, KVCacheCoordinator, CoordinatorView),
    (GroupTables, SingleTypeKVCacheManager, GroupView),
]


def methods(protocol: type) -> dict[str, inspect.Signature]:
    members = vars(protocol).items()
    return {
        name: inspect.signature(member)
        for name, member in members
        if inspect.isfunction(member) and not name.startswith("_")
    }


@pytest.mark.parametrize(("protocol", "ours", "theirs"), PAIRS)
def test_methods_are_there_and_take_the_same(protocol: type, ours: type, theirs: type) -> None:
    wanted = methods(protocol)
    assert wanted
    for name, signature in wanted.items():
        for manager in (ours, theirs):
            has = list(inspect.signature(getattr(manager, name)).parameters)
            first = list(signature.parameters)[: 2 if "args" in signature.parameters else None]
            assert has[: len(first)] == first, f"{manager.__name__}.{name}"
            assert "args" in signature.parameters or len(has) == len(first)


@pytest.mark.parametrize(("protocol", "ours", "theirs"), PAIRS)
def test_properties_of_views_are_those_of_the_protocol(
    protocol: type, ours: type, theirs: type
) -> None:
    names = {n for n, member in vars(protocol).items() if isinstance(member, property)}
    assert {name for name in names if not hasattr(theirs, name)} <= {
        "block_pool", "coordinator", "single_type_managers",
    }  # fmt: skip
