"""Whole scenarios on both engines: every file that a run leaves has the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.config import Scenario
from sim.errors import ConfigError
from sim.results import RunResult
from sim.simulation import simulate
from tests.compiled.scenarios import (
    ENDLESS,
    HEADLINES,
    LARGE,
    LLAMA,
    SHORT,
    SMALL,
    Case,
    headline,
    seen_in,
)
from tests.test_determinism import contents

FILES = {"requests.parquet", "steps.parquet", "waste.parquet", "summary.json", "layout.json"}


def run(scenario: Scenario, folder: Path) -> RunResult:
    result = simulate(scenario)
    result.save(folder, figures=False)
    return result


def compare(python: Scenario, compiled: Scenario, folder: Path) -> RunResult:
    """Run both and compare all files; return the Python engine's result."""
    result = run(python, folder / "python")
    run(compiled, folder / "compiled")
    expected, found = contents(folder / "python"), contents(folder / "compiled")
    assert set(expected) >= FILES
    assert [name for name in expected if expected[name] != found.get(name)] == []
    assert set(found) == set(expected)
    return result


def check(case: Case, folder: Path) -> None:
    result = compare(case.scenario("python"), case.scenario("compiled"), folder)
    assert seen_in(result) >= case.happens


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_small_scenarios_write_the_same_bytes(case, tmp_path):
    check(case, tmp_path)


@pytest.mark.compiled
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
def test_large_scenarios_write_the_same_bytes(case, tmp_path):
    check(case, tmp_path)


@pytest.mark.compiled
@pytest.mark.parametrize("name", HEADLINES)
def test_headline_scenarios_write_the_same_bytes(name, tmp_path):
    compare(headline(name, "python"), headline(name, "compiled"), tmp_path)


def test_another_seed_is_noticed(tmp_path):
    """The comparison can fail: a run that is not the same one has other bytes."""
    case = SMALL[-1]
    other = case.scenario("compiled").model_copy(update={"seed": 1})
    with pytest.raises(AssertionError, match="parquet"):
        compare(case.scenario("python"), other, tmp_path)


def test_both_refuse_times_that_do_not_fit_their_tables():
    """Steps of 11 days: the clock passes 2**62 ns after 4,611 of them."""
    latency = {"latency": {"name": "constant", "params": {"step_ms": 1e9}}}
    told = []
    for core in ("python", "compiled"):
        case = Case("endless", LLAMA, ENDLESS, 135, scheduler=SHORT, sections=latency)
        with pytest.raises(ConfigError) as caught:
            simulate(case.scenario(core))
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "simulated time within 146 years" in told[0]
