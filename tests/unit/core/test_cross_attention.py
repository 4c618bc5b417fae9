"""An encoder's output. Source: spec/manager.md 3.6, 4.1."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.errors import ConfigError
from sim.request import Request
from tests.helpers import allocate, decode, full, tables
from tests.unit.core.kinds import cross, native


def serving(num_blocks=20):
    """A decoder with blocks of 4, beside an encoder's 30 tokens in blocks of 16."""
    return native([full(4), cross(16)], num_blocks=num_blocks, enable_caching=False)


def test_the_encoder_is_allocated_for_once():
    manager = serving()
    request = Request("a", 6, 8)
    assert allocate(manager, request, 6, num_encoder_tokens=30) == ([1, 2], [3, 4])
    for _ in range(4):
        decode(manager, request)
    # 10 tokens are 3 blocks; the encoder's two stay two.
    assert tables(manager, request) == [[1, 2, 5], [3, 4]]
    check_integrity(manager)
    manager.free(request)
    assert manager.usage == 0
    check_integrity(manager)


def test_a_running_request_that_is_quiet_still_gets_its_encoder_blocks():
    manager = serving()
    request = Request("a", 2, 8)
    allocate(manager, request, 1)
    assert request.quiet_until == 5
    assert allocate(manager, request, 1, num_encoder_tokens=30) == ([], [2, 3])


@pytest.mark.parametrize(("usable", "fits"), [(4, True), (3, False)])
def test_prediction_and_gate_count_the_encoder(usable, fits):
    for settings in ({}, {"full_sequence_must_fit": True}):
        manager = serving(usable + 1)
        request = Request("a", 6, 8)
        new = manager.allocate_slots(request, 6, num_encoder_tokens=30, **settings)
        assert (new is not None) == fits
        assert manager.block_pool.get_num_free_blocks() == (0 if fits else usable)


def test_need_for_a_whole_request():
    manager = serving()
    # Token 21 is computed with 20 before it: 6 blocks of 4, and 30 of the encoder in 2 of 16.
    assert manager.coordinator.num_blocks_held(20, num_encoder_tokens=30) == 8
    assert manager.coordinator.most_blocks_held(5, 21, num_encoder_tokens=30) == 8


def test_tables_for_computed_tokens_keep_the_encoder_whole():
    manager = serving()
    request = Request("a", 10, 8)
    allocate(manager, request, 10, num_encoder_tokens=30)
    assert manager.get_block_ids_for_computed_tokens("a", 5) == ([1, 2], [4, 5])


def test_nothing_is_cached():
    with pytest.raises(ConfigError, match="enable_prefix_caching: True: false with cross"):
        native([full(4), cross(16)], num_blocks=20)
    group = serving().coordinator.single_type_managers[1]
    with pytest.raises(ValueError, match="cross attention"):
        group.cache_blocks("a", [], 16, 16)
    with pytest.raises(NotImplementedError):
        group.find_longest_cache_hit([], 16, [1], False, 16)
    assert group.get_num_common_prefix_blocks("a") == 0
