"""Hypothesis makes worlds, plays them on vLLM and on ours, and shrinks one that differs.

Needs vLLM, so it is no part of `make test`; the verify stage of `make ci` runs it and, for longer,
the same worlds from plain seeds (`python -m tests.differential`).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from sim.vllm.installed import is_installed
from tests.differential.compare import compare
from tests.differential.random_worlds import LEVELS, worlds

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="vLLM 0.25.1 is not installed: docs/vllm.md"),
    pytest.mark.filterwarnings("ignore"),
]
# No state is shared between examples, and a world takes as long as it takes.
CHOSEN = settings(
    max_examples=int(os.environ.get("KVSIM_EXAMPLES", "40")),
    derandomize=False,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("level", LEVELS)
def test_both_sides_agree(level):
    @CHOSEN
    @given(st.data())
    def play(data):
        world = data.draw(worlds(level))
        note(world.dumps())
        compare(world)

    play()
