"""Build the wheel, install it with its dependencies into an empty environment, and use it there.

`python .ci/wheel.py` needs no environment of its own. What it makes is in a temporary folder.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHECKS = [
    # arguments of kvsim, what its output holds
    (["--version"], "kvsim "),
    (["list", "models"], "google--gemma-3-27b-it"),
    (["list", "hardware"], "h100-80gb"),
    (["run", "gemma_3_27b_multi_turn", "--print-scenario"], "name: multi_turn"),
    (
        ["layout", "google/gemma-3-27b-it", "--kv-cache-memory", "20GiB"],
        "GPU KV cache size: 184,270 tokens",
    ),
    (
        ["layout", "google/gemma-3-27b-it", "--kv-cache-memory", "20GiB", "--json"],
        '"num_blocks": 16384',
    ),
]


def call(*command: str | Path, cwd: Path) -> str:
    """Return what a command printed; a failure ends this program with its output."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, install, check."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = folder / "env"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        call(python, "-m", "pip", "wheel", "--no-deps", "-w", folder, ROOT, cwd=folder)
        (wheel,) = folder.glob("*.whl")
        call(python, "-m", "pip", "install", "--quiet", wheel, cwd=folder)
        for arguments, expected in CHECKS:
            output = call(environment / "bin" / "kvsim", *arguments, cwd=folder)
            if expected not in output:
                sys.exit(f"kvsim {' '.join(arguments)}: no {expected!r} in\n{output}")
            print(f"kvsim {' '.join(arguments)}: ok")


if __name__ == "__main__":
    main()
