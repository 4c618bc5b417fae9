"""The command: its output, its errors, its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sim
from sim.cli import main, options
from sim.cli.layout import layout_settings
from sim.cli.listing import KINDS
from sim.config import CacheConfig, EngineConfig, Scenario, SchedulerConfig, Speculative
from sim.errors import ConfigError
from sim.scenario_file import parse_yaml, scenario_from

ROOT = Path(__file__).parents[1]
SMALL = ["--model", "meta-llama/Llama-3.1-8B", "--kv-cache-memory", "17GiB",
         "--workload-param", "num_requests=6", "--latency", "constant"]  # fmt: skip


@pytest.fixture(autouse=True)
def folder_fixture(tmp_path, monkeypatch):
    """Every command runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def process(*arguments: str, **settings) -> subprocess.Popen:
    command = [sys.executable, "-m", "sim", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        **settings,
    )  # fmt: skip


# -- errors ---------------------------------------------------------------------------------
WRONG = {
    "": [
        "kvsim: no command: known: layout, groupings, run, cluster, list, explain, export, "
        "examples, plot, curve, verify"
    ],
    "layuot": ["kvsim: layuot: known: layout,", "did you mean layout?"],
    "--versoin": ["kvsim: --versoin: an option of kvsim", "did you mean --version?"],
    "layout": ["MODEL: missing: a value is needed"],
    "layout a b": ["kvsim layout: b: one argument too many, see kvsim layout --help"],
    "layout m --blok-size 3": ["kvsim layout: --blok-size:", "did you mean --block-size?"],
    "run --model m --format x": ["--format: an option of kvsim run (see its --help)\n"],
    "layout m --block-size": ["--block-size: missing: a value is needed"],
    "layout gemma-3-27b-it": ["model: gemma-3-27b-it: known:", "mean google--gemma-3-27b-it?"],
    "layout google/gemma-3-27b-it --block-size 1.5": ["--block-size: 1.5: a valid integer"],
    "layout google/gemma-3-27b-it --block-size -16": ["--block-size: -16: greater than"],
    "layout google/gemma-3-27b-it --kv-cache-memory 20Gb5": ["--kv-cache-memory: 20Gb5: a number"],
    "layout google/gemma-3-27b-it --grouping vlm": ["--grouping: vlm:", "did you mean vllm?"],
    "list modles": ["kvsim list: modles: known: models", "did you mean models?"],
    "run": ["kvsim run: no scenario: a SCENARIO, or --model MODEL"],
    "run none.yaml": ["SCENARIO: none.yaml: a file that exists"],
    "run gemma_3_27b_multiturn": ["SCENARIO: gemma_3_27b_multiturn: known:", "multi_turn?"],
    "run --quiet=3": ["--quiet: a value: no value"],
    "run --model m --workload-param x": ["--workload-param: x: KEY=VALUE"],
    "run --model m --workload-param =1": ["--workload-param: =1: KEY=VALUE"],
    "run --model m --workload-param a.=1": ["--workload-param: a.=1: KEY=VALUE"],
    "run --model m --workload-param a=[": ["--workload-param a:1:"],
    "run --model m --force --verify": ["--force: with --verify: one of the two"],
    "run --model m --unschedulable no": ["--unschedulable: no: 'reject' or 'wait'"],
    "run --model google/gemma-3-27b-it --hardware h10": ["h10: known:", "did you mean h100-80gb?"],
    "run --model google/gemma-3-27b-it --latency rofline": ["rofline", "did you mean roofline?"],
    "run --model google/gemma-3-27b-it --workload multi": ["multi: known", "mean multi_turn?"],
    "run --model google/gemma-3-27b-it --trace none": ["--trace: none: a file that exists"],
    "run --model m --workload mooncake --print-scenario": ["--trace: missing: a value is needed"],
    "run gemma_3_27b_mooncake": ["workload.params.path: missing: a value is needed"],
    "run --model m --trace t --workload shared_prefix": ["--trace:", "only with the workload moon"],
    "run --model m --trace-block-size 16": ["--trace-block-size:", "only with the workload moonca"],
    "run --model m --max-requests 3": ["--max-requests:", "multi_turn: only with the workload moo"],
    "list models --params": ["--params: with models: only with workloads, latency, acceptance, r"],
    "export none": ["RUN: none: a folder that holds a complete result"],
    "plot none": ["RUN: none: a folder that holds a complete result"],
    "export .": ["RUN: .: not a folder with a result"],
    "export none --format xls": ["--format: xls: known: csv"],
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_gives_one_line_of_the_error_form_and_code_2(capsys, tmp_path, line) -> None:
    code, out, err = call(capsys, *line.split())
    assert (code, out) == (2, "")
    assert err.startswith("kvsim: error: ")
    assert err.count("\n") == 1
    for part in WRONG[line]:
        assert part in err
    assert list(tmp_path.iterdir()) == []


def test_every_wrong_value_has_its_own_line(capsys) -> None:
    arguments = ["--block-size", "x", "--max-num-seqs", "0", "--seed", "-1"]
    code, _, err = call(capsys, "run", "--model", "m", *arguments)
    assert code == 2
    assert [line.split(": ")[2] for line in err.splitlines()] == [
        "--block-size", "--max-num-seqs", "--seed"
    ]  # fmt: skip


def test_unknown_key_of_a_file_is_named_with_the_nearest_one(capsys, tmp_path) -> None:
    (tmp_path / "s.yaml").write_text("model: m\ncache: {blok_size: 16}\n")
    code, _, err = call(capsys, "run", "s.yaml")
    assert code == 2
    assert "kvsim: error: cache.blok_size: 16: known: " in err
    assert "did you mean block_size?" in err


def test_pool_too_small_for_the_longest_request_is_told_in_vllms_words(capsys) -> None:
    # spec/layout.md 8.4: needed, available, estimated maximum length
    code, _, err = call(capsys, "layout", "google/gemma-3-27b-it", "--kv-cache-memory", "1GiB")
    assert code == 2
    assert "To serve at least one request with the model's max seq len (131072)" in err
    assert "the estimated maximum model length is" in err


WORDS = [
    *("layout", "groupings", "run", "list", "export", "examples", "plot"),
    *("models", "m", "", "é", "a=1", "16", "-", "--"),
    *("--json", "--model", "--out", "--block-size", "--workload-param", "--seed", "--trace", "-x"),
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=5))
def test_no_command_line_gives_a_traceback(capsys, words: list[str]) -> None:
    code, _, err = call(capsys, *words)
    assert code in (0, 2)
    assert code == 0 or all(line.startswith("kvsim: error: ") for line in err.splitlines())


# -- layout and list ------------------------------------------------------------------------
def test_layout_json_has_the_published_names_and_values(capsys) -> None:
    # spec/layout.md 13 and 14, Gemma-3-27b at 20 GiB
    code, out, err = call(
        capsys, "layout", "google/gemma-3-27b-it", "--kv-cache-memory", "20GiB", "--json"
    )
    data = json.loads(out)
    assert (code, err) == (0, "")
    names = "schema model settings groups tensors num_blocks bytes_per_block block_sizes capacity"
    assert set(data) >= {*names.split(), "waste", "log_lines"}
    assert (data["num_blocks"], len(data["groups"])) == (16384, 7)
    assert data["capacity"]["tokens"] == 184270
    assert data["block_sizes"] == {"scheduler": 16, "hash": 16}


def test_layout_prints_log_lines_verbatim_however_narrow_the_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sim.cli.consoles.PLAIN_WIDTH", 40)
    _, out, _ = call(capsys, "layout", "google/gemma-3-27b-it", "--kv-cache-memory", "20GiB")
    lines = out.splitlines()
    assert "GPU KV cache size: 184,270 tokens" in lines
    assert "Maximum concurrency for 131,072 tokens per request: 1.41x" in lines
    assert "Add 8 padding layers, may waste at most 15.38% KV cache memory" in lines


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("models", "google--gemma-3-27b-it"),
        ("groupings", "min_layers"),
        ("workloads", "shared_prefix"),
        ("scenarios", "gemma_3_27b_multi_turn"),
        ("hardware", "h100-80gb"),
        ("metrics", "request_throughput"),
        ("latency", "affine"),
    ],
)
def test_list_prints_one_name_a_line(capsys, kind: str, name: str) -> None:
    code, out, err = call(capsys, "list", kind)
    assert (code, err) == (0, "")
    assert name in [line.partition(" ")[0] for line in out.splitlines()]
    _, out, _ = call(capsys, "list", kind, "--json")
    assert name in json.loads(out)[kind]


def test_list_alone_lists_the_kinds(capsys) -> None:
    code, out, err = call(capsys, "list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(KINDS)
    assert json.loads(call(capsys, "list", "--json")[1])["kinds"].keys() == KINDS.keys()


def test_list_of_models_tells_architecture_layers_and_context(capsys) -> None:
    # Gemma-3-27b: 62 layers, every sixth is full attention (10), config.json
    _, out, _ = call(capsys, "list", "models")
    (line,) = [line for line in out.splitlines() if line.startswith("google--gemma-3-27b-it ")]
    assert line.split(maxsplit=1)[1] == (
        "Gemma3ForConditionalGeneration, 62 layers (52 sliding, 10 full), context 131,072"
    )


def test_list_of_metrics_ends_with_the_symbols(capsys) -> None:
    _, out, _ = call(capsys, "list", "metrics")
    assert "K bytes of KV memory" in [" ".join(line.split()) for line in out.splitlines()]
    assert json.loads(call(capsys, "list", "metrics", "--json")[1])["symbols"]["a"] == "arrival"


def test_list_with_params_prints_default_and_meaning(capsys) -> None:
    _, out, _ = call(capsys, "list", "latency", "--params")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "decode_request_us 27.0 cost of each decode request" in lines
    data = json.loads(call(capsys, "list", "workloads", "--params", "--json")[1])["workloads"]
    assert data["mooncake"]["path"]["default"] == "needed"
    assert data["multi_turn"]["arrival.rate_per_s"]["default"] == 0.8


# -- what options mean ----------------------------------------------------------------------
def keys_of(model: type, section: str) -> set[str]:
    return {f"{section}.{name}" for name in model.model_fields}


def test_every_key_of_a_scenario_is_an_option() -> None:
    sections = {"cache": CacheConfig, "scheduler": SchedulerConfig, "engine": EngineConfig}
    wanted = set().union(*(keys_of(model, name) for name, model in sections.items()))
    wanted |= keys_of(Speculative, "speculative") - {"speculative.acceptance"}
    wanted |= set(Scenario.model_fields) - {*sections, "latency", "workload", "speculative"}
    for section in ("latency", "workload", "speculative.acceptance"):
        wanted |= {f"{section}.name", f"{section}.params"}
    assert wanted <= {option.key for option in options.RUN_OPTIONS}


def default_of(key: str) -> object:
    value = scenario_from({"model": "m"})
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part)
    return value


@pytest.mark.parametrize("option", [o for o in options.RUN_OPTIONS if o.default], ids=str)
def test_default_in_the_help_is_the_default_of_the_scenario(option) -> None:
    shown = {"on": True, "off": False, "60GiB": 60 * 2**30}.get(option.default, option.default)
    default = default_of(option.key) if not option.key.startswith("workload.params.") else None
    if default is None:  # decided from the model, or by the workload: told in words or by its value
        assert option.key == "cache.enable_prefix_caching" or option.kind in ("number", "text")
    elif isinstance(default, bool | str):
        assert default == shown
    else:
        assert float(default) == float(shown)


def test_layout_settings_take_every_field_from_the_scenario() -> None:
    scenario = scenario_from({"model": "m", "cache.block_size": 32, "scheduler.max_model_len": 99})
    made = layout_settings(scenario)
    assert (made.block_size, made.max_model_len, made.grouping) == (32, 99, "vllm")
    assert made.max_num_batched_tokens == scenario.scheduler.max_num_batched_tokens


def test_print_scenario_writes_the_file_that_the_flags_mean(capsys, tmp_path) -> None:
    flags = ["--model", "m", "--latency", "constant", "--trace", "t.jsonl",
             "--trace-block-size", "64", "--arrival-scale", "0.2", "--max-requests", "5",
             "--no-enable-prefix-caching", "--watermark", "0.1",
             "--latency-param", "step_ms=1e1", "--workload-param", "time_unit=s"]  # fmt: skip
    code, text, _ = call(capsys, "run", *flags, "--print-scenario")
    assert code == 0
    (tmp_path / "s.yaml").write_text(text)
    assert call(capsys, "run", "s.yaml", "--print-scenario") == (0, text, "")
    data = yaml.safe_load(text)
    arrival = {"kind": "timestamps", "arrival_scale": 0.2}
    arrival |= dict.fromkeys(("rate_per_s", "burstiness", "concurrency", "think_time_s"))
    assert data["workload"] == {
        "name": "mooncake",
        "params": {"path": "t.jsonl", "block_size": 64, "time_unit": "s", "max_requests": 5,
                   "skip_empty": False, "arrival": arrival},
    }  # fmt: skip
    assert data["latency"] == {"name": "constant", "params": {"step_ms": 10.0}}
    assert data["cache"]["enable_prefix_caching"] is False
    assert data["scheduler"]["watermark"] == 0.1
    code, text, _ = call(capsys, "run", *flags, "--print-scenario", "--json")
    assert (code, json.loads(text)) == (0, {"schema": 1, "scenario": data})


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "scenarios").glob("*.yaml")), ids=str)
def test_scenario_file_that_ships_is_complete(path: Path) -> None:
    from sim.simulation import assemble

    data = parse_yaml(path.read_text(), path.name)
    trace = {"workload.params.path": "t"} if "mooncake" in path.name else {}
    assert assemble(scenario_from(trace, data)).layout.kv_cache_config.num_blocks > 1


# -- run ------------------------------------------------------------------------------------
def test_run_writes_a_result_reuses_it_and_verifies_it(capsys, tmp_path) -> None:
    code, out, _ = call(capsys, "run", *SMALL, "--no-figures", "--json")
    first = json.loads(out)
    assert code == 0
    assert first["schema"] >= 1
    ended = {"submitted": 6, "finished": 6, "aborted": 0, "rejected": 0}
    assert first["requests"] == {**first["requests"], **ended}
    assert set(first) >= {"scenario", "time_s", "metrics", "waste", "files"}
    folder = tmp_path / first["folder"]
    assert folder == tmp_path / "runs" / first["run_id"]
    assert all((folder / name).is_file() for name in first["files"])

    before = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    code, out, err = call(capsys, "run", *SMALL, "--no-figures", "--json")
    assert (code, json.loads(out)) == (0, first)
    assert "reused" in err
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == before

    code, out, err = call(capsys, "run", *SMALL, "--verify", "--json")
    assert (code, json.loads(out)) == (0, first)
    assert "the same values" in err


def test_scenario_file_and_flags_give_the_same_run(capsys, tmp_path) -> None:
    _, text, _ = call(capsys, "run", *SMALL, "--print-scenario")
    (tmp_path / "s.yaml").write_text(text)
    _, by_flags, _ = call(capsys, "run", *SMALL, "--no-figures", "--json")
    _, by_file, _ = call(capsys, "run", "s.yaml", "--force", "--no-figures", "--json")
    assert json.loads(by_file) == json.loads(by_flags)


def test_resolved_scenario_of_a_result_runs_as_the_same_run(capsys) -> None:
    _, out, _ = call(capsys, "run", *SMALL, "--no-figures", "--json")
    folder = json.loads(out)["folder"]
    code, again, err = call(capsys, "run", f"{folder}/scenario.yaml", "--no-figures", "--json")
    assert (code, again) == (0, out)
    assert "reused" in err


def test_verify_finds_a_changed_table(capsys, tmp_path) -> None:
    import pandas as pd

    call(capsys, "run", *SMALL, "--no-figures", "--out", "r")
    steps = pd.read_parquet(tmp_path / "r" / "steps.parquet")
    steps.loc[0, "prefill_tokens"] += 1
    steps.to_parquet(tmp_path / "r" / "steps.parquet")
    code, _, err = call(capsys, "run", *SMALL, "--verify", "--out", "r")
    assert code == 1
    assert "kvsim: differs from r: steps.prefill_tokens" in err


def test_folder_with_another_scenarios_result_is_not_reused(capsys) -> None:
    call(capsys, "run", *SMALL, "--no-figures", "--out", "r", "--quiet")
    code, _, err = call(capsys, "run", *SMALL, "--no-figures", "--out", "r", "--seed", "1")
    assert code == 2
    assert "kvsim: error: --out: r: " in err
    code, _, _ = call(capsys, "run", *SMALL, "--no-figures", "--out", "r", "--seed", "1", "--force")
    assert code == 0


def test_folder_that_holds_something_else_is_left_alone(capsys, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    code, _, err = call(capsys, "run", *SMALL, "--out", "mine", "--force")
    assert (code, (tmp_path / "mine" / "thesis.txt").read_text()) == (2, "dear")
    assert "kvsim: error: out: mine: " in err


def test_run_that_ends_stuck_names_the_requests_and_exits_with_1(capsys) -> None:
    # 100 blocks pass the start-up check for 1,600 tokens, but block 0 is the null block: a prompt
    # of 1,590 tokens needs 100 blocks of the 99 that are left
    lengths = {"system_prompt": 1540, "user": 50, "output": 5}
    params = [f"{name}={{mean: {mean}}}" for name, mean in lengths.items()]
    arguments = ["--num-gpu-blocks-override", "100", "--max-model-len", "1600"]
    arguments += ["--workload", "shared_prefix", "--workload-param", "num_requests=2"]
    arguments += [word for param in params for word in ("--workload-param", param)]
    model = ["--model", "meta-llama/Llama-3.1-8B", "--latency", "constant", "--no-figures"]
    code, out, err = call(capsys, "run", *model, *arguments, "--unschedulable", "wait", "--json")
    assert code == 1, err
    assert "kvsim: stuck: " in err
    assert json.loads(out)["requests"]["finished"] == 0
    code, out, err = call(capsys, "run", *model, *arguments, "--json")
    assert (code, json.loads(out)["requests"]["rejected"]) == (0, 2), err


def test_summary_for_people_names_the_figures(capsys, tmp_path) -> None:
    code, out, _ = call(capsys, "run", *SMALL, "--out", "r")
    assert code == 0
    assert "figures  r/figures (hit_rate, latency, memory; PNG and SVG)" in out.splitlines()
    assert len(list((tmp_path / "r" / "figures").iterdir())) == 6
    assert "time to first token" in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []


def test_export_writes_the_tables_as_csv(capsys, tmp_path) -> None:
    import pandas as pd

    call(capsys, "run", *SMALL, "--no-figures", "--out", "r")
    code, out, _ = call(capsys, "export", "r", "--out", "tables")
    assert code == 0
    assert out.splitlines() == [f"tables/{name}.csv" for name in ("requests", "steps", "waste")]
    table = pd.read_csv(tmp_path / "tables" / "requests.csv")
    assert list(table["request_id"]) == list(pd.read_parquet("r/requests.parquet")["request_id"])
    assert len(list((tmp_path / "tables").iterdir())) == 3


# -- the process ----------------------------------------------------------------------------
def test_version_and_help_load_no_heavy_library() -> None:
    code = (
        "import sys; from sim.cli import main; main([{0!r}]);"
        "heavy = {{'pandas', 'matplotlib', 'pyarrow', 'simpy', 'numpy'}} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    for option in ("--version", "--help"):
        command = [sys.executable, "-c", code.format(option)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "kvsim" in done.stdout


def test_import_of_sim_loads_nothing_and_names_at_most_15() -> None:
    assert len(sim.__all__) <= 15
    assert all(getattr(sim, name) is not None for name in sim.__all__)
    code = "import sys, sim; print(sorted(m for m in sys.modules if m.startswith('sim.')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sim.nothing  # noqa: B018


def test_interrupt_exits_with_130_and_leaves_nothing_half_written(tmp_path) -> None:
    arguments = ["--model", "meta-llama/Llama-3.1-8B", "--latency", "constant", "--quiet",
                 "--workload-param", "num_requests=1000000"]  # fmt: skip
    running = process("run", *arguments, cwd=tmp_path)
    time.sleep(3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (130, "")
    assert err == "kvsim: interrupted, nothing written\n"
    assert list(tmp_path.iterdir()) == []


def test_reader_that_goes_away_is_no_error(tmp_path) -> None:
    running = process("list", "metrics", cwd=tmp_path)
    running.stdout.close()
    assert running.wait(timeout=20) == 141
    assert running.stderr.read() == ""
    running.stderr.close()


def test_disk_full_is_an_error_and_no_traceback(tmp_path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sim", "list", "models"], stdout=full, cwd=ROOT,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "kvsim: error: output: No space left on device: a place that can be used\n"
    )


def test_error_of_the_library_is_the_error_of_the_command(capsys) -> None:
    with pytest.raises(ConfigError) as caught:
        sim.load_model("gemma")
    _, _, err = call(capsys, "layout", "gemma")
    assert err == f"kvsim: error: {caught.value}\n"
