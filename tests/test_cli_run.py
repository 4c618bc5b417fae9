"""``kvsim run`` and its result: figures, remarks, Ctrl-C, and scenarios by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sim.cli
from sim.cli import main
from sim.results import is_complete

ROOT = Path(__file__).parents[1]
SMALL = ["--model", "meta-llama/Llama-3.1-8B", "--kv-cache-memory", "17GiB",
         "--workload-param", "num_requests=6", "--latency", "constant"]  # fmt: skip
FIGURES = [
    f"{name}.{kind}" for name in ("hit_rate", "latency", "memory") for kind in ("png", "svg")
]


@pytest.fixture(autouse=True)
def folder_fixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def interrupt(*arguments, **named):
    raise KeyboardInterrupt


# -- figures --------------------------------------------------------------------------------
def test_reused_result_gets_the_figures_that_are_wanted_now(capsys, tmp_path) -> None:
    call(capsys, "run", *SMALL, "--out", "r", "--no-figures")
    assert names(tmp_path / "r" / "figures") == []
    code, out, err = call(capsys, "run", *SMALL, "--out", "r")
    assert (code, names(tmp_path / "r" / "figures")) == (0, FIGURES)
    assert "kvsim: r: figures drawn" in err
    assert "figures  r/figures (hit_rate, latency, memory; PNG and SVG)" in out
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert {f"figures/{name}" for name in FIGURES} < set(summary["files"])
    assert "drawn" not in call(capsys, "run", *SMALL, "--out", "r")[2]


def test_reused_result_keeps_its_figures_where_none_are_wanted(capsys, tmp_path) -> None:
    call(capsys, "run", *SMALL, "--out", "r")
    call(capsys, "run", *SMALL, "--out", "r", "--no-figures")
    assert names(tmp_path / "r" / "figures") == FIGURES


def test_plot_names_the_files_it_wrote(capsys, tmp_path) -> None:
    call(capsys, "run", *SMALL, "--out", "r", "--no-figures")
    code, out, _ = call(capsys, "plot", "r", "--out", "drawn")
    assert code == 0
    assert sorted(out.splitlines()) == [f"drawn/{name}" for name in FIGURES]
    assert names(tmp_path / "drawn") == FIGURES


# -- Ctrl-C ---------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["simulate", "results.RunResult.save"])
def test_interrupt_before_the_result_is_there(capsys, tmp_path, monkeypatch, moment) -> None:
    place = {"simulate": "sim.simulation.simulate"}.get(moment, f"sim.{moment}")
    monkeypatch.setattr(place, interrupt)
    code, _, err = call(capsys, "run", *SMALL, "--out", "r", "--quiet")
    assert (code, err, names(tmp_path)) == (130, "kvsim: interrupted, nothing written\n", [])


def test_interrupt_after_the_result_is_there_says_so(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sim.report_text.summary_renderables", interrupt)
    code, _, err = call(capsys, "run", *SMALL, "--out", "r", "--quiet", "--no-figures")
    assert (code, err) == (130, "kvsim: interrupted, r holds a complete result\n")
    assert is_complete(tmp_path / "r")


def test_interrupted_plot_and_export_leave_nothing(capsys, tmp_path, monkeypatch) -> None:
    call(capsys, "run", *SMALL, "--out", "r", "--no-figures")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupt)
    assert call(capsys, "plot", "r", "--out", "drawn")[0] == 130
    monkeypatch.setattr("pandas.DataFrame.to_csv", interrupt)
    assert call(capsys, "export", "r", "--out", "tables")[0] == 130
    assert names(tmp_path / "tables") == []
    assert names(tmp_path) == ["r", "tables"]


def test_interrupt_while_modules_are_imported_is_no_traceback(tmp_path) -> None:
    """typer is the first thing that takes long; here its import is interrupted."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    code = "from sim.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "kvsim: interrupted, nothing written\n")


def test_import_of_the_entry_loads_no_other_module_of_the_project() -> None:
    code = "import sys, sim.cli; print(sorted(m for m in sys.modules if m.startswith('sim')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['sim', 'sim.cli']\n"
    assert sim.cli.main is main


# -- remarks --------------------------------------------------------------------------------
def test_rejected_and_never_submitted_requests_are_told(capsys) -> None:
    # one session of three turns: 100 + 30 tokens of the first prompt exceed max_model_len 120
    params = ["num_requests=3", "mean_turns=1000", "system_prompt={mean: 100}",
              "first_user={mean: 30}"]  # fmt: skip
    arguments = [*SMALL, "--max-model-len", "120", "--no-figures"]
    arguments += [word for param in params for word in ("--workload-param", param)]
    code, out, err = call(capsys, "run", *arguments)
    assert code == 0
    assert "0 of 1 finished, 1 rejected" in out
    assert err.splitlines()[-2:] == [
        "kvsim: rejected: 1 request, first: s0.0: prompt of 130 tokens, max_model_len 120",
        "kvsim: never submitted: 2 of 3 requests: "
        "an earlier one of their session or client was rejected",
    ]
    assert call(capsys, "run", *arguments, "--quiet")[2] == ""


# -- which scenario -------------------------------------------------------------------------
def test_scenario_that_comes_along_runs_by_its_name(capsys) -> None:
    code, text, _ = call(capsys, "run", "gpt_oss_20b_shared_prefix", "--print-scenario")
    path = str(ROOT / "configs" / "scenarios" / "gpt_oss_20b_shared_prefix.yaml")
    assert (code, text) == call(capsys, "run", path, "--print-scenario")[:2]


def test_missing_trace_names_option_or_key_and_the_nearest_file(capsys, tmp_path) -> None:
    (tmp_path / "trace.jsonl").touch()
    _, _, err = call(capsys, "run", "--model", "openai/gpt-oss-20b", "--trace", "trce.jsonl")
    end = "trce.jsonl: a file that exists; did you mean trace.jsonl?\n"
    assert err == f"kvsim: error: --trace: {end}"
    workload = "{name: mooncake, params: {path: trce.jsonl}}"
    (tmp_path / "s.yaml").write_text(f"model: openai/gpt-oss-20b\nworkload: {workload}\n")
    assert call(capsys, "run", "s.yaml")[2] == f"kvsim: error: workload.params.path: {end}"
