"""The table of kinds, and the example of docs/adding.md. Source: spec/manager.md 3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from sim.core.attention import (
    ATTENTION_KINDS,
    check_attention_kind,
    manager_class,
    register_attention_kind,
)
from sim.core.attention.full import FullAttentionManager
from sim.errors import ConfigError
from sim.layout.kv_cache_spec import EncoderOnlyAttentionSpec, KVCacheSpec
from tests.helpers import Prefixes, admit, allocate, full, sliding, tables
from tests.unit.core.kinds import (
    SHAPE,
    chunked,
    cross,
    held_while_decoding,
    latent,
    latent_window,
    native,
    rswa,
    sink,
)

ADDING = Path(__file__).parents[3] / "docs" / "adding.md"


@pytest.fixture
def table():
    """Leave the table of kinds as it was."""
    before = dict(ATTENTION_KINDS)
    yield ATTENTION_KINDS
    ATTENTION_KINDS.clear()
    ATTENTION_KINDS.update(before)


@pytest.fixture
def anchored(table):
    """Run the example of the document and return its spec class."""
    text = ADDING.read_text(encoding="utf-8")
    name = Path(__file__).relative_to(ADDING.parents[1]).as_posix()
    (code,) = re.findall(rf"<!-- executed: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {"__name__": __name__}
    exec(compile(code, str(ADDING), "exec", dont_inherit=True), names)
    return names["AnchoredSpec"]


def test_the_example_keeps_anchor_and_window(anchored):
    """Blocks of 4, anchor 6, window 8: 2 blocks stay; 28 computed read 21 to 28: 2 to 4 go."""
    manager = native([anchored(block_size=4, anchor=6, window=8, **SHAPE)], num_blocks=40)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(18), max_tokens=40)
    admit(manager, request)
    seen = {}
    for computed, held in held_while_decoding(manager, request, 30):
        seen[computed] = held
        assert manager.coordinator.num_blocks_held(computed) == held
    row = tables(manager, request)[0]
    assert [bool(block) for block in row] == [True] * 2 + [False] * 3 + [True] * 3
    # A second request hits the prompt: it is cached as long as it is not evicted.
    assert manager.get_computed_blocks(prefixes.request("b", range(18)))[1] == 16


def test_the_example_goes_with_other_kinds(anchored):
    spec = anchored(block_size=4, anchor=4, window=8, **SHAPE)
    manager = native([sliding(4, 8), spec], num_blocks=60)
    prefixes = Prefixes(4)
    request = prefixes.request("a", range(22))
    allocate(manager, request, 22)
    assert manager.get_computed_blocks(prefixes.request("b", range(22)))[1] == 20
    list(held_while_decoding(manager, request, 30))


@pytest.mark.parametrize(
    "specs",
    [
        # Sizes at which blocks are freed between the steps that take one.
        [chunked(4, 6)],
        [full(4), chunked(4, 6)],
        [rswa(4, 6)],
        [rswa(4, 6), sliding(4, 11)],
        [latent(8), latent_window(4, 7)],
        ["anchored"],
    ],
    ids=["chunked", "full, chunked", "rswa", "rswa, sliding", "latent, latent window", "anchored"],
)
@pytest.mark.parametrize("lookahead", [0, 3])
def test_the_shortcut_of_quiet_steps_changes_nothing(anchored, specs, lookahead):
    """Two managers in step, one of which never takes the shortcut: equal tables all the way."""
    own = anchored(block_size=4, anchor=6, window=7, **SHAPE)
    specs = [own if spec == "anchored" else spec for spec in specs]
    worlds = [
        (native(specs, num_blocks=80), Prefixes(4).request("a", range(11), max_tokens=60))
        for _ in range(2)
    ]
    for step in range(60):
        seen = []
        for is_slow, (manager, request) in enumerate(worlds):
            if is_slow:
                request.quiet_until = 0
            allocate(manager, request, 1 if step else 11, num_lookahead_tokens=lookahead)
            request.num_tokens = request.num_computed_tokens + 1
            pool = manager.block_pool
            seen.append((tables(manager, request), pool.prefix_id, pool.ref_cnt))
        assert seen[0] == seen[1]


def test_a_kind_is_served_once(table):
    with pytest.raises(ConfigError, match="FullAttentionSpec: a kind without a manager"):
        register_attention_kind(type(full(4)), FullAttentionManager)


def test_a_derived_kind_is_served_by_its_parents_manager():
    @dataclass(frozen=True, kw_only=True)
    class Wider(type(sliding(4, 8))):
        pass

    assert manager_class(Wider(block_size=4, sliding_window=8, **SHAPE)).__name__ == (
        "SlidingWindowManager"
    )


def test_a_kind_without_a_manager_is_refused():
    spec = EncoderOnlyAttentionSpec(block_size=4, **SHAPE)
    with pytest.raises(ConfigError, match="EncoderOnlyAttentionSpec"):
        manager_class(spec)


def test_kinds_are_checked_before_a_pool_exists():
    for spec in (full(4), cross(4), chunked(4, 8), rswa(4, 8), latent(4)):
        check_attention_kind(spec)
    check_attention_kind(sink(4, 8), {"Q2"})
    with pytest.raises(ConfigError, match="Q2"):
        check_attention_kind(sink(4, 8))


def test_every_spec_that_is_planned_for_can_be_run():
    def leaves(kind):
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]

    named = {kind for kind in leaves(KVCacheSpec) if "kind" in vars(kind)}
    served = {kind for kind in named if any(base in ATTENTION_KINDS for base in kind.__mro__)}
    unserved = {kind.__name__ for kind in named - served if kind.__module__.startswith("sim.")}
    # A bundle is served by its layers' manager; encoder-only layers keep nothing.
    assert unserved == {"UniformTypeKVCacheSpecs", "EncoderOnlyAttentionSpec"}
