"""Names of defects, on the command line and in files. What they do: tests/spec/test_compat.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.compat import QUIRKS, fixes_of
from sim.config import Scenario, validated
from sim.errors import ConfigError
from sim.simulation import assemble, build_manager

SCENARIO_DOCUMENT = Path(__file__).parents[2] / "docs" / "scenario.md"


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("vllm-0.25.1", set()),
        ("fixed", set(QUIRKS)),
        ("Q1", {"Q1"}),
        ("Q1, Q13", {"Q1", "Q13"}),
        ({"fix": ["Q4", "Q4"]}, {"Q4"}),
        ({"fix": []}, set()),
    ],
)
def test_names(value, names):
    assert fixes_of(value) == names


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("fixd", "compat: fixd: known: fixed, vllm-0.25.1, Q1, Q2, Q3, Q4, Q7, Q8, Q13"),
        ({"fix": ["Q5"]}, "Q5 is not"),
        ("Q1,", "an empty name is not"),
        ({"fix": "Q1"}, "compat: {'fix': 'Q1'}: vllm-0.25.1, fixed, or fix: with a list of Q1"),
        ({"fx": []}, "or fix: with a list of Q1"),
        (7, "or fix: with a list of Q1"),
        (None, "or fix: with a list of Q1"),
    ],
)
def test_errors_name_what_is_known(value, line):
    with pytest.raises(ConfigError) as caught:
        validated(Scenario, {"model": "x", "compat": value})
    (shown,) = caught.value.lines()
    assert shown.startswith("compat: ")
    assert line in shown


def test_the_manager_of_a_run_gets_them():
    scenario = {"model": "openai--gpt-oss-20b", "compat": {"fix": ["Q4"]}}
    cache = {"num_gpu_blocks_override": 9000}
    manager = build_manager(assemble(validated(Scenario, {**scenario, "cache": cache})))
    assert {m.fixes for m in manager.coordinator.single_type_managers} == {frozenset({"Q4"})}


def test_each_is_explained():
    rows = SCENARIO_DOCUMENT.read_text(encoding="utf-8").split("\n## compat\n")[1]
    assert [row.split("`")[1] for row in rows.splitlines() if row.startswith("| `Q")] == [*QUIRKS]
