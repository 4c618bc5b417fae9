"""``kvsim curve``: its table, its files, its errors, and what an interrupt leaves."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim.cli import main
from sim.curve import model_making
from sim.curve.result import Point
from tests.curve.made_traces import made_rows, write_trace
from tests.curve.slow_lru import slow_hits

ROOT = Path(__file__).parents[2]
LISTED = ["--trace-block-size", "32"]
GEMMA = ["--model", "google/gemma-3-1b-it", "--max-model-len", "2000", "--engine", "python"]
FILES = ["curve.csv", "curve.json", "curve.png", "curve.svg"]


@pytest.fixture(autouse=True)
def folder_fixture(tmp_path, monkeypatch):
    """Every command runs in a folder of its own, where ``made.jsonl`` is the trace."""
    monkeypatch.chdir(tmp_path)
    write_trace(made_rows(4), tmp_path / "made.jsonl")


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["curve", "made.jsonl", *LISTED, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def points(folder: str = "curves/made") -> list[dict]:
    return json.loads(Path(folder, "curve.json").read_text(encoding="utf-8"))["points"]


# -- what it writes -----------------------------------------------------------------------------
def test_hits_in_the_files_are_those_of_a_slow_lru(capsys):
    code, out, err = call(capsys, "--capacities", "3,30,12,300")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in Path("curves/made").iterdir()) == FILES
    rows = made_rows(4)
    requests = [row["hash_ids"] for row in rows]
    total = sum(row["input_length"] for row in rows)
    for point, capacity in zip(points(), [3, 12, 30, 300], strict=True):
        hits = slow_hits("leaf_first", requests, list(map(len, requests)), capacity)
        tokens = sum(min(32 * h, row["input_length"]) for h, row in zip(hits, rows, strict=True))
        assert point["capacity_blocks"] == capacity
        assert (point["hit_blocks"], point["hit_tokens"]) == (sum(hits), tokens)
        assert point["hit_ratio"] == tokens / total
        assert f"{sum(hits):,}" in out


def test_the_table_file_and_the_document_hold_the_same_points(capsys):
    call(capsys, "--capacities", "5,50")
    with Path("curves/made/curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(Point.__dataclass_fields__)
    for row, point in zip(rows, points(), strict=True):
        assert row == {k: "" if v is None else str(v) for k, v in point.items()}


def test_without_capacities_there_are_fifteen_up_to_all_blocks(capsys):
    call(capsys)
    document = json.loads(Path("curves/made/curve.json").read_text(encoding="utf-8"))
    found = document["points"]
    assert len(found) == 15
    assert found[0]["capacity_blocks"] == document["totals"]["longest_request"]
    assert found[-1]["capacity_blocks"] == document["totals"]["num_distinct"]
    assert document["schema"] == 1
    assert document["settings"]["trace"] == "made.jsonl"


def test_equal_input_gives_equal_bytes(capsys):
    contents = []
    for out in ("one", "two"):
        assert call(capsys, "--out", out)[0] == 0
        contents.append([Path(out, name).read_bytes() for name in FILES])
    assert contents[0] == contents[1]


def test_json_on_stdout_is_the_document(capsys):
    _, out, _ = call(capsys, "--json", "--no-figures")
    document = json.loads(Path("curves/made/curve.json").read_text(encoding="utf-8"))
    assert json.loads(out) == {"folder": "curves/made", **document}
    assert sorted(path.name for path in Path("curves/made").iterdir()) == FILES[:2]


def test_a_curve_of_blocks_of_an_engine_hits_whole_blocks_before_the_last_token(capsys):
    """Blocks of 16 in a trace of 32: what counting says where nothing is evicted."""
    call(capsys, "--block-size", "16", "--capacities", "100000")
    known: set[tuple[int, int]] = set()
    tokens = 0
    for row in made_rows(4):
        full = row["input_length"] // 32 * 2
        names = [(row["hash_ids"][k // 2], k) for k in range(full)]
        hit = 0
        while hit < min(full, (row["input_length"] - 1) // 16) and names[hit] in known:
            hit += 1
        tokens += 16 * hit
        known |= set(names)
    assert points()[0]["hit_tokens"] == tokens


def test_outputs_take_room_unless_they_are_left_out(capsys):
    hits = []
    for more in ([], ["--no-outputs"]):
        call(capsys, "--block-size", "16", "--capacities", "60", *more)
        hits.append(points()[0]["hit_blocks"])
    assert hits[0] < hits[1]


def test_full_blocks_leave_out_what_is_not_full(capsys):
    call(capsys, "--full-blocks", "--capacities", "100000")
    rows = made_rows(4)
    document = json.loads(Path("curves/made/curve.json").read_text(encoding="utf-8"))
    assert document["totals"]["num_lookups"] == sum(row["input_length"] // 32 for row in rows)


def test_a_sample_says_how_far_it_may_be_off(capsys):
    code, out, _ = call(capsys, "--sample", "0.5", "--seed", "3")
    assert code == 0
    assert "±" in out
    assert "estimated from 0.5 of the blocks (seed 3)" in out
    assert all(point["hit_tokens_error"] > 0 for point in points())
    assert points()[0]["capacity_blocks"] >= 32


def test_groups_of_a_model_stand_beside_one_chain_in_the_same_memory(capsys):
    code, out, _ = call(capsys, *GEMMA, "--capacities", "2MiB,8MiB,1GiB")
    assert code == 0
    folder = "curves/made.gemma-3-1b-it"
    groups = [p for p in points(folder) if p["series"] == "groups"]
    chain = [p for p in points(folder) if p["series"] == "chain"]
    assert [p["capacity_bytes"] for p in groups] == [2**21, 2**23, 2**30]
    assert [p["capacity_bytes"] for p in chain] == [2**21, 2**23, 2**30]
    assert groups[0]["num_not_served"] > 0
    assert groups[2]["num_not_served"] == 0
    assert groups[2]["hit_tokens"] == chain[2]["hit_tokens"] > groups[1]["hit_tokens"]
    assert "not served" in out


def test_capacities_of_a_model_may_count_blocks_of_its_pool(capsys):
    call(capsys, *GEMMA, "--capacities", "300")
    assert points("curves/made.gemma-3-1b-it")[0]["capacity_blocks"] == 300


def test_default_capacities_of_a_model_serve_every_request(capsys):
    call(capsys, *GEMMA, "--no-figures")
    groups = [p for p in points("curves/made.gemma-3-1b-it") if p["series"] == "groups"]
    assert len(groups) == 15
    assert not any(point["num_not_served"] for point in groups)


# -- errors ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--capacities", "1,x"], "--capacities: x: blocks, or bytes with a unit"),
        (["--capacities", "0"], "--capacities: 0: blocks, or bytes with a unit"),
        (["--capacities", ""], "--capacities: : blocks, or bytes with a unit"),
        (["--capacities", "1GiB"], "--capacities: bytes: blocks: without --model a block has no"),
        (["--definition", "leaf"], "definition: leaf: known: leaf_first"),
        (["--grouping", "vllm"], "kvsim curve: --grouping: only with --model"),
        (["--engine", "python"], "kvsim curve: --engine: only with --model"),
        (["--full-blocks", "--block-size", "16"], "--full-blocks: only with the blocks of"),
        (["--no-outputs"], "--no-outputs: only with --block-size or --model"),
        (["--sample", "0.5", *GEMMA], "--sample: only without --model"),
        (["--sample", "0"], "--sample: 0.0: above 0 and below 1"),
        (["--sample", "0.1", "--definition", "root_first"], "--sample: only leaf_first"),
        (["--sample", "0.1", "--capacities", "159"], "159: at least 160 blocks with a sample"),
        (["--block-size", "0"], "--block-size: 0: "),
        (["--model", "ai21labs/Jamba-v0.1"], "--model: ai21labs--Jamba-v0.1: a model that caches"),
        (["--model", "no-model"], "no-model"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_writes_nothing(capsys, arguments, line):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("kvsim: error: ")
    assert line in err
    assert not Path("curves").exists()


def test_a_trace_that_is_not_there_or_wrong_is_named(capsys):
    assert main(["curve", "mode.jsonl"]) == 2
    assert "did you mean made.jsonl?" in capsys.readouterr().err
    Path("made.jsonl").write_text('{"timestamp": 1, "input_length": 5}\n', encoding="utf-8")
    assert main(["curve", "made.jsonl"]) == 2
    assert "made.jsonl:1:hash_ids: missing" in capsys.readouterr().err


def test_prompts_without_tokens_list_no_blocks_and_are_no_requests_of_an_engine(capsys):
    empty = {"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}
    write_trace([empty, *made_rows(4)], Path("made.jsonl"))
    assert call(capsys)[0] == 0
    code, _, err = call(capsys, "--block-size", "16")
    assert (code, "input_length" in err) == (2, True)
    assert call(capsys, "--block-size", "16", "--skip-empty")[0] == 0


def test_a_folder_with_something_else_is_left_alone(capsys):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine", encoding="utf-8")
    code, _, err = call(capsys, "--out", "mine")
    assert (code, "mine: a new or empty folder" in err) == (2, True)
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]


# -- interrupts --------------------------------------------------------------------------------
def test_an_interrupt_leaves_nothing_half_written(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model_making, "_serve", interrupted)
    code, out, err = call(capsys, *GEMMA, "--capacities", "8MiB")
    assert (code, out, err) == (130, "", "kvsim: interrupted, nothing written\n")
    assert not Path("curves").exists()


@pytest.mark.slow
def test_an_interrupt_from_outside_leaves_nothing_either():
    write_trace(made_rows(4, 20_000), Path("made.jsonl"))
    command = [sys.executable, "-m", "sim", "curve", "made.jsonl", *LISTED, *GEMMA]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "kvsim: interrupted, nothing written\n"
    assert sorted(path.name for path in Path().iterdir()) == ["made.jsonl"]
