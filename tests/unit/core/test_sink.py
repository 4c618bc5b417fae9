"""Sinks. Source: spec/manager.md 3.8, Q2."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.errors import ConfigError
from tests.helpers import Prefixes, admit, free_list, full
from tests.unit.core.kinds import native, sink


def test_the_reference_cannot_start_it():
    with pytest.raises(ConfigError, match=r"SinkFullAttentionSpec.*Q2.*fixed") as caught:
        native([sink(4, 8)], num_blocks=12)
    assert len(caught.value.lines()) == 1


def test_mended_it_holds_its_blocks_for_ever():
    manager = native([sink(4, 8)], num_blocks=12, fixes={"Q2"})
    assert manager.coordinator.num_permanent_blocks == 2
    assert free_list(manager) == list(range(3, 12))
    check_integrity(manager)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(10))
    assert admit(manager, request) == (0, ([3, 4, 5],))
    check_integrity(manager)
    assert manager.reset_prefix_cache() is False
    manager.free(request)
    assert manager.get_computed_blocks(prefixes.request("b", range(10)))[1] == 8
    # The sinks are no request's: emptying the cache is possible.
    assert manager.reset_prefix_cache() is True
    assert manager.get_computed_blocks(prefixes.request("c", range(10)))[1] == 0
    assert sorted(free_list(manager)) == list(range(3, 12))
    check_integrity(manager)


@pytest.mark.parametrize("sink_len", [0, 6, 48])
def test_sinks_are_whole_blocks_that_the_pool_has(sink_len):
    with pytest.raises(ConfigError, match="sink_len"):
        native([sink(4, sink_len)], num_blocks=12, fixes={"Q2"})


def test_two_groups():
    manager = native([full(4), sink(4, 4)], num_blocks=12, fixes={"Q2"})
    assert manager.coordinator.num_permanent_blocks == 1
    check_integrity(manager)
