"""``kvsim verify`` and ``--manager``, with and without vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import main
from sim.scenario_file import scenario_yaml
from sim.scheduler.scheduler import Scheduler
from sim.vllm import installed, is_installed
from tests.vllm.scenarios import MODELS, scenario

with_vllm = pytest.mark.skipif(not is_installed(), reason="vLLM 0.25.1 is not installed")


def file_of(folder: Path, name: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(scenario_yaml(scenario(name)), encoding="utf-8")
    return str(path)


@with_vllm
@pytest.mark.parametrize("name", MODELS)
def test_a_scenario_is_verified_and_counted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", file_of(tmp_path, name), "--every", "10", "--json", "--quiet"]) == 0
    counts = json.loads(capsys.readouterr().out)["compared"]
    assert counts["requests"] == 24
    assert counts["calls"] > 2 * counts["steps"] > 200
    assert counts["steps"] > counts["states"] > counts["steps"] // 10
    assert counts["events"] > 0


@with_vllm
def test_nothing_compared_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Prompts of the workload are longer than that, so each of them is refused.
    assert main(["verify", file_of(tmp_path, "full"), "--max-model-len", "8", "--quiet"]) == 1
    assert capsys.readouterr().out.startswith("nothing was compared")


@with_vllm
def test_a_difference_ends_it_with_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = Scheduler._below_threshold
    monkeypatch.setattr(
        Scheduler, "_below_threshold", lambda self, num_new: max(right(self, num_new) - 1, 1)
    )
    assert main(["verify", file_of(tmp_path, "full"), "--quiet"]) == 1
    account = capsys.readouterr().out
    assert account.startswith("the first difference, after schedule() of step ")
    assert "\n  what     scheduled tokens\n  request  " in account


@pytest.mark.parametrize("command", [["run", "--manager", "vllm"], ["verify"]])
def test_without_vllm_the_recipe_is_printed(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(installed, "installed_version", lambda: None)
    assert main([command[0], file_of(tmp_path, "full"), *command[1:]]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kvsim: error: ")
    assert "needs vLLM 0.25.1, it is not installed" in error
    assert "pip install --no-deps vllm==0.25.1" in error


def test_another_version_is_not_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed.metadata, "version", lambda name: "0.24.0")
    assert not installed.is_installed()
    monkeypatch.setattr(installed.metadata, "version", lambda name: "0.25.1+cpu")
    assert installed.is_installed()


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        (["--reasons"], "--reasons"),
        (["--kv-events", "jsonl"], "--kv-events"),
        (["--compat", "fixed"], "--compat"),
    ],
)
def test_what_vllm_cannot_do_is_refused(
    flags: list[str], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", file_of(tmp_path, "full"), "--manager", "vllm", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"kvsim: error: {key}: ")


def test_verification_needs_our_own_manager(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", file_of(tmp_path, "full"), "--manager", "vllm"]) == 2
    assert "--manager: vllm: native" in capsys.readouterr().err
