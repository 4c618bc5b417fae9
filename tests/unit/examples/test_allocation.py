"""The design text's examples: every number is the text's, every drawing draws."""

import pytest

from sim.examples import EXAMPLES, Check, save_figures
from sim.examples.allocation import ALLOCATION
from sim.examples.allocation.toy_pool import renumbered

WORKED = {build.__name__: build for build in ALLOCATION}


@pytest.fixture(scope="module")
def worked_fixture():
    return {name: build() for name, build in WORKED.items()}


def test_all_parts_of_the_text_are_there():
    assert list(WORKED) == [
        "toy_model",
        "regular_pattern",
        "irregular_pattern",
        "recurrent_states",
        "kv_sharing",
        "memory_layout",
    ]
    assert list(EXAMPLES) == ["allocation"]


@pytest.mark.parametrize("name", WORKED)
def test_every_number_is_what_the_text_says(worked_fixture, name):
    example = worked_fixture[name]
    assert len(example.checks) >= 3
    assert [(check.what, check.stated, check.computed) for check in example.failures] == []
    assert all(check.source for check in example.checks)


def test_check_that_does_not_hold_is_a_failure():
    assert not Check("x", 1, 2, "here").holds
    assert Check("x", [1], [1], "here").holds


def test_text_and_tables_of_the_112_token_request(worked_fixture):
    # seeds/hybrid_kv_cache_manager.txt: 0-6 for full, 7-8 and 9-10 for the sliding groups
    tables = worked_fixture["regular_pattern"].data["tables"]
    assert [[b for b in row if b is not None] for row in tables] == [
        [0, 1, 2, 3, 4, 5, 6], [7, 8], [9, 10]
    ]  # fmt: skip
    assert worked_fixture["memory_layout"].data["group_of_block"] == [0] * 7 + [1] * 2 + [2] * 2


def test_tables_are_renumbered_in_order_and_null_blocks_left_out():
    assert renumbered(((5, 3), (0, 9))) == [[0, 1], [None, 2]]


def test_figures_are_written_and_are_the_same_each_time(tmp_path, worked_fixture):
    two = [worked_fixture["toy_model"], worked_fixture["recurrent_states"]]
    first, second = (save_figures(two, tmp_path / folder) for folder in "ab")
    assert [path.name for path in first][:2] == ["case_1_toy_model.svg", "case_1_toy_model.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert all(path.stat().st_size > 5000 for path in first)


@pytest.mark.parametrize("name", WORKED)
def test_drawing_shows_each_block_or_layer(worked_fixture, name):
    from matplotlib.figure import Figure

    figure = Figure()
    worked_fixture[name].draw(figure)
    texts = {text.get_text() for axes in figure.axes for text in axes.texts}
    shown = {
        "toy_model": {"full.0", "sw.2", "/", "0", "12"},
        "regular_pattern": {"/", *map(str, range(11))},
        "irregular_pattern": {*map(str, range(62))},
        "recurrent_states": set(),
        "kv_sharing": {*map(str, range(35))},
        "memory_layout": {f"KVCacheTensor {i}" for i in range(10)} | {f"sw.{i}" for i in range(20)},
    }[name]
    assert shown <= texts
    if name == "recurrent_states":
        heights = [round(p.get_height() * 1024) for p in figure.axes[2].patches]
        assert heights == [16 * 4096, 311296, 327680, 16384]  # Jamba, in bytes
