"""Compare with vLLM itself for a while: `python .ci/verify.py --seconds 270 --seed-from-tree`.

Makes its own environment, .venv-oracle, once (1.9 GB, a minute or two); it fails if vLLM cannot be
installed. With --seed-from-tree the worlds follow from the files: the same commit gives the same
ones, and each change gives new ones.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-oracle"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS = ROOT / "docs" / "vllm-requirements.txt"
INSTALLS = [
    # arguments of pip install, in this order; torch's CPU build is enough (docs/vllm.md)
    ["torch==2.13.0"],
    ["--no-deps", "vllm==0.25.1"],
    ["--no-deps", "-r", str(REQUIREMENTS)],
    ["pytest>=8", "hypothesis>=6.100", "--editable", str(ROOT)],
]
NUM_EXAMPLES = 60  # of Hypothesis, per level
HASHED = ("sim/**/*.py", "tests/differential/**/*.py", "workloads/**/*.py")


def main() -> int:
    """Return 0 if both sides agreed on every world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seed-from-tree", action="store_true")
    parser.add_argument("--json", help="file for the counts")
    args = parser.parse_args()
    install()
    seed = seed_of_tree() if args.seed_from_tree else args.seed
    return search(args, seed) or hypothesis(seed)


def search(args: argparse.Namespace, seed: int) -> int:
    """Play worlds from plain seeds, for as long as was asked."""
    command = [str(PYTHON), "-m", "tests.differential", "--seed", str(seed)]
    command += ["--seconds", str(args.seconds), "--processes", str(args.processes)]
    command += ["--json", args.json] if args.json else []
    return subprocess.run(command, cwd=ROOT).returncode


def hypothesis(seed: int) -> int:
    """Play some worlds that Hypothesis makes; it shrinks one that fails."""
    command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    command += ["tests/differential/test_against_vllm.py"]
    more = {"KVSIM_EXAMPLES": str(NUM_EXAMPLES), "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **more}).returncode


def install() -> None:
    """Make the environment unless it is there and complete."""
    done = ENVIRONMENT / ".installed"
    wanted = hashlib.sha256(repr(INSTALLS).encode() + REQUIREMENTS.read_bytes()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return
    print(f"making {ENVIRONMENT.name} with vLLM 0.25.1 for the CPU", flush=True)
    venv.create(ENVIRONMENT, with_pip=True)
    for arguments in INSTALLS:
        if not pip_install(arguments):
            sys.exit(f"pip could not install {' '.join(arguments)}")
    done.write_text(wanted)


def pip_install(arguments: list[str]) -> bool:
    """Return whether pip succeeded."""
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", *arguments]
    return subprocess.run(pip, cwd=ROOT, env={**os.environ, "PIP_NO_INPUT": "1"}).returncode == 0


def seed_of_tree() -> int:
    """Return 32 bits that follow from the committed tree, or from the files where git is absent."""
    git = ["git", "rev-parse", "HEAD^{tree}"]
    try:
        told = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        told = hash_of_files()
    return int(told.strip()[:8], 16)


def hash_of_files() -> str:
    """Return a hash of the sources, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(p for pattern in HASHED for p in ROOT.glob(pattern)):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
