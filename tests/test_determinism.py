"""Same scenario and seed, same bytes; and a run that is killed leaves a whole result or none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim.results import RunResult, is_complete

SMALL = [
    *("--model", "ai21labs--Jamba-v0.1", "--enable-prefix-caching", "--mamba-cache-mode", "align"),
    *("--workload", "multi_turn", "--workload-param", "num_requests=30", "--no-figures"),
]
FIGURES = [
    *("--model", "google--gemma-3-1b-it", "--kv-cache-memory", "2GiB"),
    *("--workload", "shared_prefix", "--workload-param", "num_requests=25"),
]


def command(arguments: list[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "sim", "run", *arguments, "--out", str(out), "--quiet"]


def environment(hash_seed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": hash_seed}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the one that names versions and the time that the run took."""
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}
    return {name: raw for name, raw in files.items() if name != "provenance.json"}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(SMALL, id="jamba", marks=pytest.mark.slow),
        pytest.param(FIGURES, id="gemma-with-figures", marks=pytest.mark.slow),
    ],
)
def test_two_processes_with_different_hash_seeds_write_the_same_bytes(arguments, tmp_path):
    for hash_seed in ("1", "2"):
        subprocess.run(
            command(arguments, tmp_path / hash_seed),
            env=environment(hash_seed),
            check=True,
            capture_output=True,
        )
    first, second = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert {"requests.parquet", "steps.parquet", "summary.json", "scenario.yaml"} <= set(first)
    assert first == second


@pytest.mark.parametrize("delay_s", [0.5, pytest.param(1.5, marks=pytest.mark.slow)])
def test_killed_run_leaves_a_complete_result_or_none(delay_s, tmp_path):
    out = tmp_path / "result"
    process = subprocess.Popen(
        command(SMALL, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists() or is_complete(out)
    # The next run is not disturbed by what the killed one left.
    subprocess.run(command(SMALL, out), check=True, capture_output=True)
    assert len(RunResult.load(out).requests) == 30
    assert [p.name for p in tmp_path.iterdir()] == ["result"]
