"""``kvsim run --profile``: a table, a part of the provenance, and the same result."""

from __future__ import annotations

import json

import pytest

from sim.cli import main
from sim.profiling import PARTS, REST

SMALL = (
    "run", "--model", "meta-llama/Llama-3.1-8B", "--latency", "constant", "--quiet",
    "--no-figures", "--workload-param", "num_requests=5",
)  # fmt: skip


@pytest.mark.parametrize("engine", ["python", pytest.param("compiled", marks=pytest.mark.compiled)])
def test_profile_is_told_and_kept_beside_an_unchanged_result(
    engine, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "--engine", engine, "--out", "plain"]) == 0
    assert main([*SMALL, "--engine", engine, "--out", "measured", "--profile"]) == 0
    assert "Where the time went" in capsys.readouterr().out
    kept = json.loads((tmp_path / "measured" / "provenance.json").read_text())["profile"]
    assert list(kept["parts"]) == sorted(PARTS)
    assert sum(part["seconds"] for part in kept["parts"].values()) == pytest.approx(kept["total_s"])
    assert kept["parts"]["lookup" if engine == "python" else "compiled engine"]["calls"] >= 5
    assert kept["parts"][REST]["seconds"] > 0
    for name in ("requests.parquet", "steps.parquet", "waste.parquet", "summary.json"):
        plain, measured = ((tmp_path / f / name).read_bytes() for f in ("plain", "measured"))
        assert plain == measured, name


def test_profile_runs_a_stored_scenario_again_and_goes_with_json(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "--engine", "python", "--out", "r"]) == 0
    capsys.readouterr()
    assert main([*SMALL, "--engine", "python", "--out", "r", "--profile", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["profile"]
    assert told == json.loads((tmp_path / "r" / "provenance.json").read_text())["profile"]


def test_profile_and_verify_exclude_each_other(capsys) -> None:
    assert main([*SMALL, "--profile", "--verify"]) == 2
    assert "--profile: with --verify: one of the two" in capsys.readouterr().err
