"""``kvsim run --engine``: asked for and impossible is an error, otherwise one line says why."""

from __future__ import annotations

import pytest

from sim import engine_choice
from sim.cli import main

RUN = ["run", "--model", "meta-llama/Llama-3.1-8B", "--no-figures", "--latency", "constant",
       "--workload-param", "num_requests=2", "--out", "r"]  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_engine_that_cannot_run_it_is_an_error_that_names_the_option(capsys):
    assert main([*RUN, "--engine", "compiled", "--reasons"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "kvsim: error: --engine: compiled: auto or python: it has no engine.reasons\n"


@pytest.mark.parametrize("asked", [[], ["--engine", "auto"], ["--engine", "python"]])
def test_fallback_is_one_line_unless_nobody_hoped_for_more(capsys, monkeypatch, asked):
    monkeypatch.setattr(engine_choice, "_of_the_installation", lambda is_asked_for: iter(()))
    assert main([*RUN, *asked, "--check-every", "50"]) == 0
    lines = capsys.readouterr().err.splitlines()
    said = "kvsim: the Python engine runs this, not the compiled one: it has no engine.check_every"
    assert lines.count(said) == (asked != ["--engine", "python"])


def test_result_of_one_engine_is_reused_for_the_other(capsys):
    assert main([*RUN, "--engine", "python", "--quiet"]) == 0
    assert main([*RUN]) == 0
    err = capsys.readouterr().err
    assert "the complete result of this scenario is reused" in err
    assert "Python engine" not in err
