"""The commands, as a user types them."""

import json

import pytest

from sim.cli import main

GEMMA = "google--gemma-3-27b-it"
MEMORY = ["--kv-cache-memory", "80GiB"]


def test_groupings_prints_every_rule_and_the_reason_of_a_refusal(capsys):
    assert main(["groupings", GEMMA, *MEMORY]) == 0
    shown = capsys.readouterr().out
    assert "737,080" in shown and "15.38%" in shown and "pr_58175" in shown
    assert "multi_layer_page: refused: a model with recurrent layers" in shown


def test_groupings_as_json(capsys):
    asked = ["--only", "vllm", "--only", "fixed:size=5", "--lengths", "4096*3+131072", "--json"]
    assert main(["groupings", GEMMA, "ai21labs--Jamba-v0.1", *MEMORY, *asked]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == 1
    assert [model["model"] for model in data["models"]] == [GEMMA, "ai21labs--Jamba-v0.1"]
    assert data["models"][0]["lengths"] == [[4096, 3], [131072, 1]]
    assert [row["name"] for row in data["models"][0]["rows"]] == ["vllm", "fixed:size=5"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["groupings"], "MODEL...: missing"),
        (["groupings", "gema"], "gema"),
        (["groupings", GEMMA, "--only", "vlm"], "did you mean vllm?"),
        (["groupings", GEMMA, "--lengths", "4k"], "--lengths: 4k: LENGTH or LENGTH*TIMES"),
        (["groupings", GEMMA, "--max-model-len", "0"], "--max-model-len: 0:"),
        (["layout", GEMMA, "--grouping", "lcm_page"], "--grouping: lcm_page: a memory plan"),
        (["layout", GEMMA, "--grouping", "fixed:size=x"], "cache.grouping.fixed.size: x:"),
        (["plot", "padding"], "MODEL: missing"),
        (["plot", "pareto", GEMMA, GEMMA], "MODEL: 2 models: one model"),
        (["plot", "run-1", GEMMA], "nothing with the result run-1"),
        (["plot", "run-1", "--lengths", "5"], "kvsim plot: --lengths: nothing with the result"),
        (["plot", "run-1", "--block-size", "16"], "kvsim plot: --block-size: nothing"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(capsys, arguments, line):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("kvsim: error: ") and line in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("figure", ["padding", "pareto"])
def test_figures_are_drawn_as_svg_and_png(capsys, tmp_path, figure):
    assert main(["plot", figure, GEMMA, *MEMORY, "--out", str(tmp_path)]) == 0
    files = capsys.readouterr().out.split()
    assert [f.rpartition("/")[2] for f in files] == [f"{figure}.svg", f"{figure}.png"]
    assert all((tmp_path / name).stat().st_size > 1000 for name in map(str, files))
