"""The stages of `make ci`, in order. Each has a time budget in seconds, printed and kept.

A stage that fails or is over its budget fails the whole: the ones after it are not started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

STAGES = [
    # name, budget in seconds, command
    ("test", 180, ["make", "test"]),
    ("wheel", 90, [sys.executable, ".ci/wheel.py"]),
    ("compiled", 330, ["make", "compiled"]),
    ("verify", 480, [sys.executable, ".ci/verify.py", "--seconds", "300", "--seed-from-tree"]),
    ("slow", 420, ["make", "slow"]),
]


def run(name: str, budget_s: int, command: list[str]) -> bool:
    """Run one stage; True if it succeeded within its budget. A late one is stopped."""
    print(f"== {name}: at most {budget_s} s: {' '.join(command)}", flush=True)
    start = time.monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(timeout=budget_s)
        verdict = "ok" if code == 0 else f"failed with exit code {code}"
    except subprocess.TimeoutExpired:
        verdict = "over its budget, stopped"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    spent_s = time.monotonic() - start
    print(f"== {name}: {verdict}; {spent_s:.0f} s of {budget_s} s", flush=True)
    return verdict == "ok"


def main() -> int:
    """Run the stages until one fails."""
    return 0 if all(run(*stage) for stage in STAGES) else 1


if __name__ == "__main__":
    sys.exit(main())
