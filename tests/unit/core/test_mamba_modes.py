"""States at every boundary, and drafts. Source: spec/manager.md 3.5."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from tests.helpers import Prefixes, admit, allocate, decode, mamba, num_held, tables
from tests.unit.core.kinds import held_while_decoding, native, rejected


def table(manager, request):
    """Return the table of the only group, as the specification prints it."""
    return [block or "-" for block in tables(manager, request)[0]]


def test_mode_all_keeps_the_last_states():
    manager = native([mamba(4, "all")], num_blocks=20)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(18))
    allocate(manager, request, 10)
    assert table(manager, request) == [1, 2, 3]
    allocate(manager, request, 8)
    assert table(manager, request) == ["-", "-", 3, 4, 5]
    decode(manager, request)
    assert table(manager, request) == ["-", "-", "-", "-", 5]
    check_integrity(manager)
    # A state that this step made is of no use before the next.
    manager.new_step_starts()
    second = prefixes.request("b", range(18))
    assert admit(manager, second)[0] == 16
    assert table(manager, second)[:4] == ["-", "-", "-", 4]
    third = prefixes.request("c", range(16))
    assert manager.get_computed_blocks(third)[1] == 12
    check_integrity(manager)


@pytest.mark.parametrize("mode", ["none", "all", "align"])
@pytest.mark.parametrize("num_drafts", [0, 2])
def test_held_blocks_are_those_of_a_real_run(mode, num_drafts):
    size = 512 if mode == "none" else 4
    manager = native([mamba(size, mode, num_drafts)], num_blocks=40, enable_caching=mode != "none")
    request = Prefixes(size).request("a", range(8), max_tokens=60)
    allocate(manager, request, 8)
    counts = list(held_while_decoding(manager, request, 40))
    most = max(held for _, held in counts)
    assert most == max(manager.coordinator.num_blocks_held(computed) for computed, _ in counts)
    assert most == manager.coordinator.most_blocks_held(8, 39)
    assert most == {"none": 1, "all": 2, "align": 2}[mode] + num_drafts


def test_mode_all_with_drafts_holds_their_blocks_and_keeps_what_a_rejection_needs():
    """Blocks of 4, two drafts: cdiv(n, 4) + 2 entries; clearing as if both were rejected."""
    manager = native([mamba(4, "all", 2)], num_blocks=30)
    request = Prefixes(4).request("a", range(7), max_tokens=40)
    allocate(manager, request, 7)
    assert table(manager, request) == [1, 2, 3, 4]
    request.num_tokens += 1
    # 8 known tokens and 2 drafts: cdiv(10, 4) + 2 = 5 entries. max(0, 7 - 2) - 1 = 4: one goes.
    allocate(manager, request, 3)
    assert table(manager, request) == ["-", 2, 3, 4, 5]
    rejected(request, 2)
    request.num_tokens += 1
    # 8 computed: max(0, 8 - 2) - 1 = 5 tokens are skipped, still one block. cdiv(11, 4) = 3.
    allocate(manager, request, 3)
    assert table(manager, request) == ["-", 2, 3, 4, 5]
    check_integrity(manager)


@pytest.mark.parametrize("mode", ["all", "align", "none"])
@pytest.mark.parametrize("num_drafts", [0, 2])
def test_quiet_steps_change_nothing(mode, num_drafts):
    """Two managers in step, one of which never takes the shortcut: equal tables all the way."""
    size = 512 if mode == "none" else 4
    worlds = []
    for _ in range(2):
        manager = native(
            [mamba(size, mode, num_drafts)], num_blocks=60, enable_caching=mode != "none"
        )
        worlds.append((manager, Prefixes(size).request("a", range(9), max_tokens=200)))
    for step in range(60):
        seen = []
        for is_slow, (manager, request) in enumerate(worlds):
            if is_slow:
                request.quiet_until = 0
            allocate(manager, request, num_drafts + 1 if step else 9)
            if step and num_drafts:
                # All, one or none of the drafts are taken back.
                rejected(request, num_drafts - step % 3)
            request.num_tokens = request.num_computed_tokens + 1
            seen.append((tables(manager, request), num_held(manager, request)))
            check_integrity(manager)
        assert seen[0] == seen[1]
