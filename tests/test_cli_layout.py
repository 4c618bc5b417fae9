"""``kvsim layout`` with all its options, and ``kvsim examples``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sim.cli import main

ROOT = Path(__file__).parents[1]
GEMMA = "google/gemma-3-27b-it"
LOG = """\
INFO Initializing a V1 LLM engine (v0.25.1) with config: model='google/gemma-3-27b-it', \
max_seq_len=131072, tensor_parallel_size=1
INFO Available KV cache memory: 20.0 GiB
WARNING Add 8 padding layers, may waste at most 15.38% KV cache memory
INFO GPU KV cache size: {tokens} tokens
INFO Maximum concurrency for 131,072 tokens per request: {concurrency}x
"""
LAYERS = [
    {"kind": "full", "layers": 20, "block_size": 16, "page_bytes": 131072},
    {"kind": "swa", "layers": 30, "block_size": 16, "page_bytes": 131072, "window": 1024},
]


@pytest.fixture(autouse=True)
def folder_fixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.log").write_text(LOG.format(tokens="184,270", concurrency="1.41"))
    # at 2048 batched tokens: 16384 x 131072 / (8192 + 6 x 193) = 229,677.4 and 1.7523
    (tmp_path / "bad.log").write_text(LOG.format(tokens="229,677", concurrency="1.75"))
    (tmp_path / "layers.json").write_text(json.dumps(LAYERS))
    (tmp_path / "nothing.log").write_text("hello\n")


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def answer(capsys, *arguments: str):
    code, out, err = call(capsys, "layout", *arguments, "--json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


# (arguments, tokens, concurrency): rows of spec/layout.md 14 and 3.2
ROWS = [
    (f"{GEMMA} --kv-cache-memory 20GiB --max-model-len 32768 --disable-hybrid-kv-cache-manager",
     42272, "1.29"),
    (f"{GEMMA} --kv-cache-memory 20GiB --pipeline-parallel-layers 31,31", 368540, "2.81"),
    (f"{GEMMA} --kv-cache-memory 20GiB --pipeline-parallel-size 2", 368540, "2.81"),
    ("openai/gpt-oss-20b --kv-cache-memory 10GiB,9GiB --pipeline-parallel-layers 12,12",
     739406, "5.64"),
    ("openai/gpt-oss-20b --kv-cache-memory 20GiB --num-speculative-tokens 1", 758361, "5.79"),
    ("openai/gpt-oss-20b --kv-cache-memory 20GiB --speculative-method draft_model "
     "--draft-num-kv-heads 8 --draft-head-size 128", 710193, "5.42"),
    ("openai/gpt-oss-20b --kv-cache-memory 20GiB --enable-cross-layers-blocks", 821558, "6.27"),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct --kv-cache-memory 20GiB --max-model-len 1048576 "
     "--tensor-parallel-size 8", 3338744, "3.18"),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct --kv-cache-memory 20GiB --num-speculative-tokens 2",
     789722, "3.01"),
    ("deepseek-ai/DeepSeek-V3 --kv-cache-memory 40GiB --kv-cache-dtype fp8", 1222336, "7.46"),
    ("deepseek-ai/DeepSeek-V3 --kv-cache-memory 40GiB --decode-context-parallel-size 8",
     4889088, "29.84"),
    ("openai/whisper-large-v3 --kv-cache-memory 4GiB --max-num-encoder-input-tokens 1500 "
     "--max-num-batched-tokens 448", 6014, "13.43"),
    ("ai21labs/Jamba-v0.1 --kv-cache-memory 20GiB --max-model-len 131072 --enable-prefix-caching "
     "--mamba-cache-mode all", 163840, "1.25"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "tokens", "concurrency"), ROWS, ids=[r[0] for r in ROWS])
def test_options_of_the_planner_give_the_engines_numbers(capsys, arguments, tokens, concurrency):
    data = answer(capsys, *arguments.split())
    assert data["capacity"]["tokens"] == tokens
    assert f"{data['capacity']['concurrency']:.2f}" == concurrency


def test_auto_fit_finds_the_longest_length(capsys):
    # spec/layout.md 8: Gemma-3-27b with 10 GiB: 16 x (8192 - 6 x 577) = 75680
    for length in ("-1", "auto"):
        code, out, _ = call(
            capsys, "layout", GEMMA, "--kv-cache-memory", "10GiB", "--max-model-len", length
        )
        assert code == 0
        assert "Auto-fit max_model_len: reduced from 131072 to 75680 to fit" in out


def test_people_see_a_drawing_of_groups_and_tensors(capsys):
    _, out, _ = call(capsys, "layout", GEMMA, "--kv-cache-memory", "20GiB")
    assert "group 4-5  ■■■■■■■■··  8 x sliding_window 1,024, 16 tokens a block" in out.splitlines()


def test_estimate_is_shown_as_one_with_its_parts(capsys):
    _, out, _ = call(capsys, "layout", GEMMA, "--gpu", "h100-80gb")
    assert "an estimate" in out
    assert "weights" in out
    data = answer(capsys, GEMMA, "--gpu", "h100-80gb", "--weight-dtype", "fp8")
    estimate = data["memory_estimate"]
    assert data["waste"]["kv_memory_bytes"] == estimate["kv"] > 0
    assert "memory_estimate" not in answer(capsys, GEMMA)


# -- explicit layers ------------------------------------------------------------------------
def test_file_of_layers_instead_of_a_model(capsys):
    # spec/layout.md 14: 20 full + 30 sliding at 20 GiB and 32768 tokens: 83,833 and 2.56x
    data = answer(
        capsys, "--specs", "layers.json", "--kv-cache-memory", "20GiB", "--max-model-len", "32768"
    )
    assert data["model"] == "layers"
    assert (data["num_blocks"], data["capacity"]["tokens"]) == (8192, 83833)
    assert [group["num_layers"] for group in data["groups"]] == [20, 15, 15]


def test_file_in_the_document_is_one(capsys, tmp_path):
    # A1 of spec/real_logs.json: 16 full and 48 states, g = 16, 51380224 bytes a block
    text = (ROOT / "docs" / "layout.md").read_text()
    (tmp_path / "doc.json").write_text(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    data = answer(capsys, "--specs", "doc.json", "--max-model-len", "32768")
    assert data["bytes_per_block"] == 51380224


# -- logs -----------------------------------------------------------------------------------
def test_log_that_agrees(capsys):
    code, out, err = call(capsys, "layout", "--from-log", "good.log")
    assert (code, err) == (0, "")
    assert "our layout agrees with the log" in out


def test_log_that_does_not_agree_names_the_change(capsys):
    code, out, _ = call(capsys, "layout", "--from-log", "bad.log", "--json")
    data = json.loads(out)
    assert (code, data["agrees"]) == (1, False)
    assert data["changes"] == [["--max-num-batched-tokens 2048"]]
    assert data["blocks_in_memory"] == [16379, 16388]
    checks = {check["name"]: check["agrees"] for check in data["checks"]}
    assert checks == {"padding layers": True, "tokens": False, "concurrency": False}
    code, out, _ = call(capsys, "layout", "--from-log", "bad.log")
    assert code == 1
    assert out.splitlines()[-2:] == ["it would with:", "  --max-num-batched-tokens 2048"]
    code, _, _ = call(capsys, "layout", "--from-log", "bad.log", "--max-num-batched-tokens", "2048")
    assert code == 0


def test_log_against_explicit_layers(capsys, tmp_path):
    # 16 full + 48 states of 3211264 bytes: A1 of spec/real_logs.json
    state = {"kind": "mamba", "layers": 48, "block_size": 1568, "page_bytes": 3211264}
    whole = {"kind": "full", "layers": 16, "block_size": 1568, "page_bytes": 3211264}
    given = {"layers": [state, whole], "mamba_cache_mode": "align"}
    (tmp_path / "a1.json").write_text(json.dumps(given))
    (tmp_path / "a1.log").write_text(
        "vLLM version 0.20.0\nAvailable KV cache memory: 6.67 GiB\n"
        "GPU KV cache size: 53,312 tokens\n"
        "Maximum concurrency for 32,768 tokens per request: 5.15x\n"
    )
    code, out, _ = call(capsys, "layout", "--specs", "a1.json", "--from-log", "a1.log", "--json")
    assert (code, json.loads(out)["num_blocks"]) == (0, 139)


WRONG = {
    "layout --from-log none.log": "--from-log: none.log: a readable file",
    "layout --from-log nothing.log": "--from-log: nothing.log: a vLLM start-up log",
    f"layout {GEMMA} --specs layers.json": f"--specs: with MODEL {GEMMA}: one of the two",
    "layout --specs none.json": "file: none.json: a file that can be read",
    "layout --specs layers.json": "scheduler.max_model_len: missing: a number of tokens",
    f"layout {GEMMA} --tensor-parallel-size 0": "--tensor-parallel-size: 0: greater than",
    f"layout {GEMMA} --tensor-parallel-size 3": "--tensor-parallel-size: 3: ",
    f"layout {GEMMA} --pipeline-parallel-layers 30,31": "--pipeline-parallel-layers: ",
    f"layout {GEMMA} --speculative-method eagel": "--speculative-method: eagel: known: ",
    f"layout {GEMMA} --attention-backend FLASHATTN": "--attention-backend: FLASHATTN: known: ",
    f"layout {GEMMA} --gpu h10": "--gpu: h10: known: h100-80gb",
    f"layout {GEMMA} --gpu h100-80gb --weight-dtype b": "--weight-dtype: b: known: ",
    f"layout {GEMMA} --kv-cache-memory 1GiB,x": "--kv-cache-memory: 1GiB,x: a number of bytes",
    f"layout {GEMMA} --max-model-len -2": "--max-model-len: -2: a number of tokens of at least 1",
    "examples alocation": "kvsim examples: alocation: known: allocation; did you mean allocation?",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_gives_the_error_form(capsys, line):
    code, out, err = call(capsys, *line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"kvsim: error: {WRONG[line]}"), err


# -- examples -------------------------------------------------------------------------------
@pytest.mark.slow
def test_examples_print_draw_and_check(capsys, tmp_path):
    code, out, err = call(capsys, "examples", "allocation", "--out", "figures")
    assert (code, err) == (0, "")
    files = [line.split()[1] for line in out.splitlines() if line.startswith("figure ")]
    assert len(files) == 12
    assert all((tmp_path / name).is_file() for name in files)
    assert "WRONG" not in out
    assert out.count("  ok: ") > 30


def test_examples_as_json_draw_nothing_without_figures(capsys, tmp_path):
    before = sorted(tmp_path.iterdir())
    code, out, _ = call(capsys, "examples", "allocation", "--no-figures", "--json")
    data = json.loads(out)
    assert code == 0
    assert len(data["examples"]) == 6
    assert all(check["holds"] for example in data["examples"] for check in example["checks"])
    assert sorted(tmp_path.iterdir()) == before


def test_number_that_is_not_the_texts_fails(capsys, monkeypatch):
    from dataclasses import replace

    from sim.examples import EXAMPLES, Check
    from sim.examples.allocation.toy_model import toy_model

    def broken():
        return replace(toy_model(), checks=(Check("blocks", 7, 8, "here"),))

    monkeypatch.setitem(EXAMPLES._entries, "broken", (broken,))
    code, out, err = call(capsys, "examples", "broken", "--no-figures")
    assert code == 1
    assert "WRONG: blocks: 8, stated 7 (here)" in out
    assert err == "kvsim: not as stated: case_1_toy_model: blocks\n"
