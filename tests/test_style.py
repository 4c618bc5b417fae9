"""Ruff, lint and format, as a test: what it says is in the failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "check", [["check"], ["format", "--check", "--diff"]], ids=["lint", "format"]
)
def test_ruff_finds_nothing(check: list[str]) -> None:
    command = [sys.executable, "-m", "ruff", *check, "--quiet", "--no-cache", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
