import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sim.config import Scenario, WorkloadPlugin
from sim.errors import ConfigError
from sim.plots import FIGURES
from sim.provenance import file_digest, provenance
from sim.result_folder import _HOST
from sim.results import RunResult, is_complete, run_id
from tests.unit.metrics.fakes import MS, make_tables, run_like_tables

SCENARIO = Scenario(model="google--gemma-3-27b-it", workload=WorkloadPlugin())
LAYOUT = {
    "schema": 1,
    "groups": [{"kind": "full_attention"}] * 2,
    "bytes_per_block": 1_310_720,
    "capacity": {"tokens": 184_270},
    "settings": {"enable_prefix_caching": True},
}
ROOT = Path(__file__).parents[2]
FILES = [
    "layout.json",
    "provenance.json",
    "requests.parquet",
    "scenario.yaml",
    "steps.parquet",
    "summary.json",
    "waste.parquet",
]


def make_result(tables=None, *, layout=None, wall_time_s=1.5):
    return RunResult.of(
        SCENARIO,
        tables or run_like_tables(num_requests=20, num_steps=10),
        layout=layout or LAYOUT,
        log_lines=["GPU KV cache size: 184,270 tokens"],
        provenance=provenance(0, wall_time_s, {"trace.jsonl": "ab" * 32}),
    )


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def assert_equal_results(left, right):
    for name in ("requests", "steps", "waste"):
        pd.testing.assert_frame_equal(getattr(left, name), getattr(right, name))
    for name in ("run_id", "scenario", "metrics", "layout", "log_lines", "provenance"):
        assert getattr(left, name) == getattr(right, name), name
    assert left.summary() == right.summary()


def test_a_saved_result_loads_as_it_was(tmp_path):
    result = make_result()
    assert result.save(tmp_path / "run", figures=False) == FILES
    assert is_complete(tmp_path / "run")
    assert_equal_results(RunResult.load(tmp_path / "run"), result)


def test_an_empty_result_and_missing_values_survive_too(tmp_path):
    rejected = {"first_token_ns": None, "cached_tokens": None, "outcome": "rejected"}
    for name, tables in {"empty": make_tables(), "one": make_tables([rejected])}.items():
        result = make_result(tables)
        result.save(tmp_path / name, figures=False)
        assert_equal_results(RunResult.load(tmp_path / name), result)


SAVE = """
import sys
from tests.unit.test_results import make_result

make_result(wall_time_s=2.0).save(sys.argv[1])
"""


@pytest.mark.slow
def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path):
    make_result(wall_time_s=1.0).save(tmp_path / "a")
    command = [sys.executable, "-c", SAVE, str(tmp_path / "b")]
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    left, right = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert len([name for name in left if name.startswith("figures/")]) == 6
    assert left.pop("provenance.json") != right.pop("provenance.json")  # only the wall time
    assert left == right


def test_tables_carry_no_versions_of_pandas(tmp_path):
    make_result().save(tmp_path / "run", figures=False)
    for name in ("requests", "steps", "waste"):
        assert b"pandas" not in (tmp_path / "run" / f"{name}.parquet").read_bytes()


def test_summary_holds_what_programs_read(tmp_path):
    one = {"arrival_ns": 0, "first_token_ns": 30 * MS, "finish_ns": 60 * MS, "output_tokens": 4}
    result = make_result(make_tables([one], [{"start_ns": 0, "end_ns": 60 * MS}]))
    result.save(tmp_path / "run", figures=False)
    text = (tmp_path / "run" / "summary.json").read_text()
    summary = json.loads(text)
    assert text.endswith("}\n")
    assert list(summary) == sorted(summary)
    assert summary["schema"] == 1
    assert summary["requests"] == {
        "submitted": 1,
        "finished": 1,
        "aborted": 0,
        "rejected": 0,
        "stuck": 0,
    }
    assert summary["time_s"] == 0.06
    assert summary["metrics"]["tpot_p50_s"] == 0.01
    assert summary["scenario"]["model"] == "google--gemma-3-27b-it"
    assert summary["files"] == FILES


def test_a_result_replaces_an_older_one_as_a_whole(tmp_path):
    make_result().save(tmp_path / "run")
    make_result(make_tables()).save(tmp_path / "run", figures=False)
    assert sorted(contents(tmp_path / "run")) == FILES
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="a new or empty folder, or one that holds a result"):
        make_result().save(tmp_path, figures=False)
    with pytest.raises(ConfigError, match="a new or empty folder"):
        make_result().save(tmp_path / "notes.txt", figures=False)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_an_error_while_writing_leaves_nothing(tmp_path):
    broken = replace(make_result(), layout={"not": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        broken.save(tmp_path / "run", figures=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_figures_added_later_give_the_folder_of_a_run_that_drew_them(tmp_path):
    make_result().save(tmp_path / "at_once")
    make_result().save(tmp_path / "later", figures=False)
    (tmp_path / "later" / "csv").mkdir()  # as an export leaves it
    assert RunResult.load(tmp_path / "later").add_figures(tmp_path / "later")
    assert contents(tmp_path / "later") == contents(tmp_path / "at_once")
    assert (tmp_path / "later" / "csv").is_dir()
    assert not RunResult.load(tmp_path / "later").add_figures(tmp_path / "later")  # once is enough


def test_drawing_that_is_interrupted_leaves_the_result_as_it_was(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    make_result().save(folder, figures=False)
    before = contents(folder)
    monkeypatch.setattr("sim.plots.FIGURES", half_of_the_figures())
    with pytest.raises(KeyboardInterrupt):
        RunResult.load(folder).add_figures(folder)
    assert contents(folder) == before
    assert sorted(p.name for p in folder.iterdir()) == FILES


def half_of_the_figures():
    """The first figure is drawn, Ctrl-C comes in the second."""

    def interrupted(result, figure):
        raise KeyboardInterrupt

    first, second, *_ = FIGURES.items()
    return {first[0]: first[1], second[0]: replace(second[1], draw=interrupted)}


@pytest.mark.parametrize("damage", ["missing", "torn", "schema", "parquet", "folder"])
def test_a_damaged_result_is_an_error_and_no_traceback(tmp_path, damage):
    folder = tmp_path / "run"
    if damage != "folder":
        make_result().save(folder, figures=False)
    if damage == "missing":
        (folder / "waste.parquet").unlink()
    elif damage == "torn":
        (folder / "summary.json").write_bytes((folder / "summary.json").read_bytes()[:100])
    elif damage == "schema":
        text = (folder / "summary.json").read_text().replace('"schema": 1', '"schema": 99')
        (folder / "summary.json").write_text(text)
    elif damage == "parquet":
        (folder / "steps.parquet").write_bytes(b"PAR1 nothing PAR1")
    assert is_complete(folder) == (damage == "parquet")
    with pytest.raises(ConfigError):
        RunResult.load(folder)


@pytest.mark.parametrize("table", ["requests", "steps", "waste"])
def test_a_table_of_another_version_is_an_error_that_names_the_column(tmp_path, table):
    make_result().save(tmp_path / "run", figures=False)
    path = tmp_path / "run" / f"{table}.parquet"
    frame = pd.read_parquet(path)
    lost = frame.columns[1]
    frame.drop(columns=[lost]).to_parquet(path)
    with pytest.raises(ConfigError, match=f"{table}.parquet has no column {lost}"):
        RunResult.load(tmp_path / "run")


KILLED = """
import os, signal, sys
from tests.unit.test_results import make_result

real, target, old_too = os.fsync, sys.argv[1], sys.argv[2] == "old"
result = make_result()

def save_and_die_at(moment):
    calls = 0
    def fsync(descriptor):
        nonlocal calls
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        real(descriptor)
    os.fsync = fsync
    result.save(target, figures=False)
    os._exit(0)

moment = status = -1
while status:
    moment += 1
    if old_too and not os.path.exists(target):
        result.save(target, figures=False)
    child = os.fork()
    if not child:
        save_and_die_at(moment)
    status = os.waitpid(child, 0)[1]
    from sim.results import is_complete
    print(moment, status, os.path.exists(target), is_complete(target))
"""


@pytest.mark.parametrize("before", ["none", "old"])
def test_a_kill_at_any_moment_leaves_a_complete_result_or_none(tmp_path, before):
    target = tmp_path / "run"
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(target), before]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) >= len(FILES) + 2  # every file, the folder, its parent; then no kill
    assert [row[1] for row in rows] == ["9"] * (len(rows) - 1) + ["0"]
    assert all(exists == complete for *_, exists, complete in rows)
    assert rows[-1][2] == "True"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]  # leftovers of the dead are gone


def test_folders_of_living_processes_and_other_hosts_are_left(tmp_path):
    kept = [f".x.kvsim-tmp-{_HOST}-{os.getppid()}", ".x.kvsim-tmp-elsewhere-1", ".x.kvsim-tmp"]
    for name in kept:
        (tmp_path / name).mkdir()
    make_result().save(tmp_path / "run", figures=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*kept, "run"])


def test_run_id_names_scenario_files_and_nothing_else():
    base = run_id(SCENARIO, {"t": "00"})
    assert base == run_id(Scenario(model="google--gemma-3-27b-it"), {"t": "00"})
    assert len(base) == 12
    assert int(base, 16) >= 0
    others = {
        run_id(SCENARIO.model_copy(update={"seed": 1}), {"t": "00"}),
        run_id(SCENARIO, {"t": "01"}),
        run_id(SCENARIO, {}),
    }
    assert len(others | {base}) == 4


def test_provenance_names_versions_and_input(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    # The digest of "abc" from FIPS 180-2, appendix B.1.
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(path) == digest
    made = provenance(7, 2.5, {"file": digest})
    assert (made["seed"], made["wall_time_s"], made["files"]) == (7, 2.5, {"file": digest})
    assert made["versions"]["numpy"]
    assert made["python"].count(".") == 2
