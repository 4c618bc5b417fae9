"""Kinds that are kept like full attention or like a window. Source: spec/manager.md 3 (table)."""

from __future__ import annotations

import pytest

from sim.core.attention import manager_class
from sim.core.integrity import check_integrity
from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import UniformTypeKVCacheSpecs
from tests.helpers import Prefixes, admit, allocate, full, mamba, sliding, tables
from tests.unit.core.kinds import (
    SIM,
    chunked,
    hidden,
    latent,
    latent_window,
    native,
    rswa,
    turbo,
)

FAMILY = [full, turbo, latent, hidden]


@pytest.mark.parametrize("kind", FAMILY)
def test_the_family_is_served_alike(kind):
    manager = native([kind(4)], num_blocks=20)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(18))
    assert admit(manager, request) == (0, ([1, 2, 3, 4, 5],))
    assert admit(manager, prefixes.request("b", range(18))) == (16, ([6],))
    assert manager.get_num_common_prefix_blocks("a") == [4]
    check_integrity(manager)


@pytest.mark.parametrize("kind", FAMILY)
def test_their_new_blocks_are_to_be_zeroed(kind):
    manager = native([kind(4), mamba(4)], num_blocks=20)
    allocate(manager, Prefixes(4).request("a", range(8)), 8)
    assert manager.take_new_block_ids() == [1, 2]
    assert manager.take_new_block_ids() == []


@pytest.mark.parametrize("spec", [sliding(4, 8), chunked(4, 8), rswa(4, 8), latent_window(4, 8)])
def test_those_of_other_kinds_are_not(spec):
    manager = native([spec], num_blocks=20)
    allocate(manager, Prefixes(4).request("a", range(8)), 8)
    assert manager.take_new_block_ids() == []


def test_a_latent_window_is_a_window():
    """w = 8: with 21 tokens computed the next reads 14 to 21, in blocks 3 to 5."""
    manager = native([latent_window(4, 8)], num_blocks=20)
    request = Prefixes(4).request("a", range(21))
    allocate(manager, request, 21)
    request.num_tokens += 1
    allocate(manager, request, 1)
    assert [bool(block) for block in tables(manager, request)[0]] == [False] * 3 + [True] * 3


def test_a_bundle_is_served_as_its_layers_are():
    bundles = [
        UniformTypeKVCacheSpecs.of({"a": latent(8), "b": latent(8)}),
        UniformTypeKVCacheSpecs.of({"c": latent_window(4, 8), "d": latent_window(4, 8)}),
    ]
    groups = tuple(
        KVCacheGroupSpec(tuple(dict(b.members)), b, is_eagle_group=False) for b in bundles
    )
    manager = SIM.KVCacheManager(KVCacheConfig(20, (), groups), 8192, 8, 4)
    for bundle, single in zip(bundles, manager.coordinator.single_type_managers, strict=True):
        assert type(single) is manager_class(bundle)
        assert single.kv_cache_spec == bundle.specs[0]
    request = Prefixes(4).request("a", range(18))
    admit(manager, request)
    assert [len(table) for table in tables(manager, request)] == [3, 5]
    check_integrity(manager)
